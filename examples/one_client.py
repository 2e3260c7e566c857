"""One real client: rank your own documents, learn from your own clicks, send only the update."""

import numpy as np

from quorank.learning import OnlineRanker
from quorank.rankers import Linear

rng = np.random.default_rng(7)
client = OnlineRanker(theta=np.zeros(5), n_features=5, ranker=Linear(), seed=7, client=42)

for _search in range(20):
    features = rng.random((30, 5))  # what your index says about the candidates of a query
    shown = client.rank(features)  # shown.order: which candidates to show, best first
    clicks = features[shown.order, 2] > 0.8  # this user likes documents with a high third feature
    client.learn(shown, clicks)

print("update to send:", np.round(client.update, 3))
assert client.update.argmax() == 2
