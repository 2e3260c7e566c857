"""Python interface: runs as objects, an estimator with scikit-learn's methods, data frames in and out.

`import quorank as qr` offers all of it: `qr.run`, `qr.resume`, `qr.open_run`, `qr.load`, `qr.FederatedRanker`.
"""
