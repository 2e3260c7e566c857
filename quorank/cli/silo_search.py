"""`quorank silo search` and `quorank silo audit`: searches over all organisations' documents, and attacks on them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from quorank.cli.display import print_result, print_rows, print_text, say, table_of
from quorank.cli.options import Json
from quorank.cli.text_collections import read_texts, skipped_of
from quorank.errors import BadInput, require
from quorank.text.collection import NAMED_FORMATS

if TYPE_CHECKING:
    from collections.abc import Callable

    from quorank.member.party_folder import PartyFolder
    from quorank.silos.search.attack import AttackOutcome

_TITLE = 30
NO_TERM = "the query has only stop words; use other words"
Epsilon = Annotated[float, Option(help="ε of one occurrence of a term in a document.")]
Parties = Annotated[int, Option(min=2, max=64, help="Number of parties among which one collection is divided.")]
Seed = Annotated[int, Option(min=0, help="Seed of the division, of keys and noise.")]


def search(
    directory: Annotated[
        Path,
        Argument(
            metavar="DIR",
            help=f"A party's folder (of silo join --data): asks its group over the network. Or documents ({NAMED_FORMATS}) "
            "divided among parties in this process; or a folder of such folders, one party each.",
        ),
    ],
    query: Annotated[str, Argument(help="Words of the query.")],
    as_: Annotated[str | None, Option("--as", help="Name of the asking party.", show_default="the first")] = None,
    parties: Parties = 4,
    epsilon: Epsilon = 8.0,
    among: Annotated[int, Option(min=1, max=16, help="Bundles that hide the query; 1 hides nothing.")] = 3,
    top: Annotated[int, Option(min=1, max=1000, help="Number of documents to list.")] = 10,
    wait: Annotated[float, Option(min=0.0, help="With a party's folder: seconds to wait for answers.")] = 60.0,
    own: Annotated[
        bool,
        Option("--own", help="With a party's folder: search its own documents by the group's ranker; send nothing."),
    ] = False,
    seed: Seed = 1,
    json: Json = False,
) -> None:
    """Search the documents of all parties, which stay where they are.

    The query is sent hidden among decoys, owners name their best documents by
    number with noisy counts, and the asker ranks them together with its own.
    With a party's folder the members of its group are asked, and own
    documents are in the order of the group's ranker; with a folder of
    documents all parties run in this process.
    """
    from quorank.member.private_store import FILE
    from quorank.silos.holdings import divide_collections
    from quorank.silos.search.in_process import search_in_process
    from quorank.silos.search.settings import SearchTerms

    if (directory / FILE).is_file():
        if own:
            search_own_documents(directory, query, top=top, json=json)
        else:
            search_party_folder(directory, query, top=top, wait=wait, json=json)
        return
    require(not own, "option.conflict", "--own needs the folder of a party that has a ranker", f"{directory}")
    terms = SearchTerms(epsilon=epsilon, among=among)
    say("reading documents …")
    read = read_texts(_collections(directory))
    holdings = divide_collections(read, parties, seed, queries=False)
    asker = as_ or holdings[0].name
    say(f"{asker} asks {len(holdings) - 1} other parties …")
    result = search_in_process(holdings, asker, query, terms, seed, top)
    found = {each.id for each in result.found}
    documents = [document for texts in read for document in texts.documents if document.id in found]
    figures = result.to_table() | {
        "query": query,
        # of the asker's own documents; without a title, how the text begins
        "titles": {document.id: " ".join((document.title or document.body).split())[:200] for document in documents},
        "setting": {
            "perturbation": terms.perturbation,
            "epsilon": epsilon,
            "among": among,
            "seed": seed,
            "most_told": terms.most_told(1),
        },
        "documents": {each.name: each.n_documents for each in holdings},
        "skipped": skipped_of(read),
    }
    print_result(figures, json, _show_search)


def search_own_documents(folder: Path, query: str, *, top: int, json: bool) -> None:
    """Search a party's own documents by its group's ranker, without the network."""
    from quorank.member.party_folder import RANKER, PartyFolder
    from quorank.rankers.ranker_file import read_ranker
    from quorank.silos.training.ranked_search import RankedSearch

    party = PartyFolder.open(folder)
    sentence = "this party has no ranker yet; wait until its session is done (quorank silo join --data)"
    require((folder / RANKER).is_file(), "silo-search.too-early", sentence, f"{folder}")
    saved, setting, name = read_ranker(folder / RANKER), party.terms.setting, party.invitation.name
    holding = party.source.holding(name, party.terms, query)
    require(holding.queries, "silo-search.no-term", NO_TERM)
    search = RankedSearch(holding, setting.searched, saved, setting.features)
    ranked = search.ranked(holding.queries[0], 0)[:top]
    found = [
        {"rank": rank, "document": row, "id": holding.documents.ids[row], "score": score}
        for rank, (row, score) in enumerate(ranked, 1)
    ]
    figures: dict[str, Any] = {"asker": name, "query": query, "terms": list(holding.queries[0]), "found": found}
    figures |= {"titles": _titles(party, found), "ranker": saved.digest, "documents": holding.n_documents}
    print_result(figures, json, _show_own_search)


def _show_own_search(figures: dict[str, Any]) -> None:
    rows = [
        (f"{each['rank']}", _document(each, figures["titles"]), f"{each['score']:.3f}") for each in figures["found"]
    ]
    if rows:
        print_text(table_of(("", "document", "score"), rows, padding=(0, 2, 0, 0)), "")
    else:
        print_text("No document holds a word of the query.", "")
    ranked = f"{figures['documents']:,} documents, by BM25, then by the group's ranker {figures['ranker'][:12]}"
    print_rows(("searched", figures["asker"], ranked), ("sent", "nothing", "the search was on this machine"))


def _titles(party: PartyFolder, found: list[dict[str, Any]]) -> dict[str, str]:
    """Return the titles of the party's own documents among some results, or the beginnings of their texts."""
    from quorank.text import read_collection

    ids, source = {each["id"] for each in found if each["id"] is not None}, party.source.collection
    documents = read_collection(source).documents if source and ids else ()
    return {each.id: " ".join((each.title or each.body).split())[:200] for each in documents if each.id in ids}


def search_party_folder(folder: Path, query: str, *, top: int, wait: float, json: bool) -> None:
    """Ask the other members of a group, through the process that runs the party or as that process."""
    from quorank.cli.silo_join import play_party
    from quorank.member.party_folder import PartyFolder

    party = PartyFolder.open(folder)
    sentence = "this group has not agreed to search; its operator begins one with quorank silo start --search"
    terms = party.terms.search
    if terms is None:
        raise BadInput("silo-search.not-agreed", sentence, f"{folder}")
    sentence = "this party has no ranker yet; wait until its session is done (quorank silo join --data)"
    require(party.state.get("done"), "silo-search.too-early", sentence, f"{folder}")
    name = party.desk.leave(query, top, wait)
    others = [other for other in party.terms.parties if other != party.invitation.name]
    sought = len(set(party.terms.setting.tokeniser.tokenise(query)))
    for other in others:
        spent = party.spent.get(other)
        say(f"{other}: {'not asked yet' if spent is None else _left(terms.most_told(sought), asdict(spent))}")
    say(f"{party.invitation.name} asks {', '.join(others)}; it waits {wait:g} s at most …")
    try:
        found = play_party(party, name, wait)
    finally:
        party.desk.withdraw(name)
    sentence = "nothing came back in time; is the service running, and is consent on?"
    if found is None:
        raise BadInput("silo-search.no-answer", sentence, f"{folder}")
    if "error" in found:
        raise BadInput("silo-search.refused", str(found["sentence"]))
    figures = found | {
        "query": query,
        "titles": _titles(party, found["found"]),
        "setting": {
            "perturbation": terms.perturbation,
            "epsilon": terms.epsilon,
            "among": terms.among,
            "seed": None,
            "most_told": terms.most_told(1),
        },
        "documents": {},
        "skipped": {},
    }
    for told in figures["parties"].values():
        told.setdefault("privacy", terms.statement())
    print_result(figures, json, _show_search)


def audit(
    collection: Annotated[
        list[Path] | None,
        Option("--collection", help=f"Documents to attack ({NAMED_FORMATS}); generated ones where none is given."),
    ] = None,
    parties: Parties = 4,
    epsilon: Epsilon = 8.0,
    words: Annotated[
        int, Option(min=100, help="Number of words in the attacker's dictionary, the most frequent ones.")
    ] = 10_000,
    seed: Seed = 1,
    json: Json = False,
) -> None:
    """Attack one owner through its answers to searches, and measure how much of its documents is rebuilt.

    A party with a dictionary asks about all words, frequent or rare ones
    first, and about one document through a word that no other contains; two
    parties do so together; one goes on for a year after its limits are
    reached, and compares refusals. The same without budgets, and in the
    published form, for comparison.
    """
    from quorank.silos.generated import Generator
    from quorank.silos.holdings import divide_collections, generated_holdings
    from quorank.silos.search.attack import (
        anchor_attack,
        dictionary_attack,
        dictionary_of,
        probe_attack,
        without_budgets,
    )
    from quorank.silos.search.settings import SearchTerms
    from quorank.silos.sketch.questions import published_attack

    read = read_texts(collection or ())
    say("making parties …")
    holdings = (
        divide_collections(read, parties, seed, queries=False)
        if read
        else generated_holdings(Generator(parties=parties, documents=300, vocabulary=6000), seed)
    )
    terms = SearchTerms(epsilon=epsilon)
    free, year = without_budgets(terms), 365 * terms.questions_a_day
    frequent, rare = dictionary_of(holdings, words)
    owner = holdings[0]
    attacks: dict[str, Callable[[], AttackOutcome]] = {
        "frequent words first": lambda: dictionary_attack(owner, frequent, terms, seed),
        "rare words first": lambda: dictionary_attack(owner, rare, terms, seed),
        "one document": lambda: anchor_attack(owner, frequent, terms, seed),
        "two members together": lambda: dictionary_attack(owner, frequent, terms, seed, members=2),
        "one document, two members": lambda: anchor_attack(owner, frequent, terms, seed, members=2),
        "refusals, for a year": lambda: probe_attack(owner, frequent, terms, seed, probes=year, spend=True),
        "full documents, for a year": lambda: probe_attack(owner, frequent, terms, seed, probes=year, spend=False),
        "frequent words, no budget": lambda: dictionary_attack(owner, frequent, free, seed),
        "one document, no budget": lambda: anchor_attack(owner, frequent[:3000], free, seed),
        "published form": lambda: published_attack(holdings, 0, 1, frequent, seed=seed),
    }
    found = {}
    for name, attack in attacks.items():
        say(f"attack: {name} …")
        found[name] = attack()._asdict()
    index = owner.documents.body
    figures = {
        "collections": [str(path) for path in collection or ()],
        "owner": owner.name,
        "documents": index.n_documents,
        "pairs": len(index.terms),
        "dictionary": len(frequent),
        "attacks": found,
        "privacy": terms.statement(),
        "skipped": skipped_of(read),
    }
    print_result(figures, json, _show_audit)


def _collections(directory: Path) -> list[Path]:
    """Return the folder itself if it holds a collection, else those of its subfolders and files that do."""
    from quorank.text import read_collection

    require(directory.exists(), "file.missing", "there is no such folder", f"{directory}")
    try:
        read_collection(directory)
        return [directory]
    except BadInput as error:
        below = sorted(path for path in directory.iterdir() if path.is_dir()) if directory.is_dir() else []
        if error.code != "text.unknown-format" or len(below) < 2:
            raise
    return below


def _show_search(figures: dict[str, Any]) -> None:
    rows = []
    for each in figures["found"]:
        document = _document(each, figures["titles"])[:_TITLE]
        rows.append((f"{each['rank']}", each["party"], document, f"{each['score']:.2f}", each["why"][:200]))
    if rows:
        print_text(table_of(("", "party", "document", "score", "words found"), rows, padding=(0, 2, 0, 0)), "")
    else:
        print_text("No document holds a word of the query.", "")
    hidden, parties = figures["setting"]["among"], figures["parties"]
    among = f"hidden among {hidden} bundles of {len(figures['terms'])} terms" if hidden > 1 else "not hidden"
    lines = [("asked", figures["asker"], f"the query, {among}; its own documents stay with it")]
    if figures["own_ranked"]:
        lines.append(("ranked", figures["asker"], "its own documents, in their places, by the group's ranker"))
    for name, told in parties.items():
        size = f"{told['question_bytes'] + told['answer_bytes']:,} bytes"
        lines.append(("spent", name, f"{_left(figures['setting']['most_told'] * len(figures['terms']), told)}; {size}"))
    lines += [("refused", name, why) for name, why in figures["refused"].items()]
    for stated in [told["privacy"] for told in parties.values()][:1]:
        lines.append(("privacy", *_claim(stated)))
        if figures["statistics_epsilon"] is not None:
            more = "more, once, for the sums of all parties' term statistics that the ranking uses"
            lines.append(("", f"ε = {figures['statistics_epsilon']:g}", more))
    print_rows(*lines)


def _document(found: dict[str, Any], titles: dict[str, str]) -> str:
    """Return an own document's id and title, or the number of another party's."""
    if found["id"] is None:
        return f"number {found['document']}"
    return ": ".join(filter(None, (found["id"], titles.get(found["id"]))))


def _left(search: int, spent: dict[str, Any]) -> str:
    """Return the sentence about the rest of a budget; a search takes at most `search` entries."""
    searches = min(
        max(spent["most_entries"] - spent["entries"], 0) // max(search, 1),
        max(spent["questions_a_day"] - spent["questions_today"], 0),
    )
    told = f"{spent['entries']:,} of {spent['most_entries']:,} entries that one asker may learn"
    return f"{told}; at least {searches:,} such searches are left"


def _claim(stated: dict[str, Any]) -> tuple[str, str]:
    if stated["epsilon"] is None:
        return "no ε", stated["horizon"]
    return f"ε = {stated['epsilon']:g}", f"for {stated['unit']}, δ = {stated['delta']:g}, {stated['horizon']}"


def _show_audit(figures: dict[str, Any]) -> None:
    rows = []
    for name, each in figures["attacks"].items():
        ended = "refused" if each["refused"] else "answered"
        document = f"{each['document']:.0%}" if name.startswith("one document") else ""
        shares = (f"{each['recovered']:.1%}", f"{each['precision']:.1%}", document)
        rows.append((name, f"{each['questions']:,}", ended, *shares))
    heads = ("attack", "questions", "in the end", "pairs rebuilt", "true", "of the document")
    print_text(table_of(heads, rows, "right", padding=(0, 1, 0, 0)), "")
    print_rows(
        ("owner", figures["owner"], f"{figures['documents']:,} documents, {figures['pairs']:,} pairs (document, term)"),
        ("privacy", *_claim(figures["privacy"])),
    )
