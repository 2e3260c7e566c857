"""What a device answers, whatever it is asked: a task of its run, a phase of a secure sum, a round of a rebuilding."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from quorank.federation.leavers.rebuilding import is_rebuilding
from quorank.member.device import Device
from quorank.member.rebuilding import Rebuilder
from quorank.protocol.messages import Declined

if TYPE_CHECKING:
    from quorank.member.secure_device import SecureDevice

_SECURE = b"QSEC"


class DeviceAnswers:
    """One device's answers; `pinned` are the identities of those whom it lets itself be summed with."""

    def __init__(self, device: Device, pinned: Mapping[int, bytes] | None = None) -> None:
        self.device, self.pinned = device, pinned

    @classmethod
    def of(cls, device: Device, given: Mapping[int, bytes] | None = None) -> DeviceAnswers:
        """A device that holds others to the identities of its invitation, and to those that it met first."""
        if not device.terms.secure:
            return cls(device)
        from quorank.member.pins import Pins

        return cls(device, Pins(device.store, device.terms.setting.clients, given))

    @cached_property
    def _secure(self) -> SecureDevice:
        from quorank.member.secure_device import SecureDevice

        return SecureDevice(self.device, self.pinned)

    @cached_property
    def _rebuilder(self) -> Rebuilder:
        return Rebuilder(self.device)

    def answer(self, content: bytes) -> bytes | Declined:
        """The reply, or why there is none; it never raises."""
        if content.startswith(_SECURE):
            return self.sum_up(content)
        if is_rebuilding(content, self.device.terms.run):
            return self.rebuild(content)
        return self.device.answer(content)

    def sum_up(self, content: bytes) -> bytes | Declined:
        """The reply to a phase of a secure sum, and to nothing else."""
        if not content.startswith(_SECURE):
            return Declined("malformed")
        return self._secure.answer(content) if self.device.terms.secure else Declined("secure")

    def rebuild(self, content: bytes) -> bytes | Declined:
        """The reply to a task of a rebuilding, and to nothing else."""
        return self._rebuilder.answer(content) if is_rebuilding(content, self.device.terms.run) else Declined("run")
