"""What a person sees when something they gave cannot be used."""


class BadInput(Exception):
    """An input is wrong: the message is one sentence that says what, where, and what was expected.

    The command line prints it and exits with 2; nothing half-made stays on disk.
    """


class Interrupted(Exception):
    """A run was asked to stop and has saved where it stands."""

    def __init__(self, round_: int, rounds: int) -> None:
        super().__init__(round_, rounds)
        self.round, self.rounds = round_, rounds


def require(condition: object, sentence: str) -> None:
    """Refuse with `sentence` unless `condition` holds."""
    if not condition:
        raise BadInput(sentence)
