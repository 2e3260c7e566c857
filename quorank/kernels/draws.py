"""Addressed random draws: each is a function of (seed, purpose, round, client, interaction, index).

The generator is Philox-4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"): a keyed
bijection of a 128-bit counter. The key comes from the seed and the purpose, the counter is the rest of the address.
A draw therefore depends on its address alone: not on threads, the order of clients or a resume.
"""

from __future__ import annotations

import math
from enum import IntEnum
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from quorank.errors import require
from quorank.kernels.arrays import Doubles, Uint64s
from quorank.kernels.compiled import Intrinsic, fixed_memory_kernel, interpreted

_M0 = np.uint64(0xD2511F53)
_M1 = np.uint64(0xCD9E8D57)
_W0 = np.uint64(0x9E3779B9)
_W1 = np.uint64(0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
_5 = np.uint64(5)
_6 = np.uint64(6)


class Purpose(IntEnum):
    """Purpose of a draw. The numbers are part of a run's format: never reuse one."""

    QUERY = 1  # which query a client submits
    RANKING = 2  # Plackett-Luce lists
    CLICK = 3  # clicks of users
    PARTICIPATION = 4  # cohorts
    INITIAL = 5  # initial parameters of a ranker
    PERTURBATION_SEED = 6  # seed that an evolution-strategies client draws and sends
    PERTURBATION = 7  # noise rebuilt from that seed
    RESPONSE = 8  # randomised response
    QUANTISATION = 9  # random rounding of an update to integers
    NOISE = 10  # noise that protects a sum, drawn by the coordinator
    NOISE_SHARE = 11  # a client's share of that noise
    CANARY = 12  # canary clients of an audit
    DROPOUT = 13  # clients that leave during a round
    ATTACK = 14  # draws of attackers
    PARTITION = 15  # division of data among clients
    DOCUMENTS = 16  # generated documents and queries
    OBFUSCATION = 17  # sketch rows that a party really queries, and the values of the others
    ANSWER = 18  # perturbation of a party's answer
    INSTANCES = 19  # pairs that become training instances of a party, and their order
    HISTORY = 20  # generated browsing histories
    CHOICE = 21  # suggestion that a person chooses
    TRAFFIC = 22  # times of searches
    STUDY = 23  # arms of clients, and repetitions of a simulated study
    ARRIVAL = 24  # times at which clients come by themselves
    DIRECTION = 60  # candidates of a dueling bandit
    SPLITS = 61  # splits of trees, drawn before the first query
    GROUP = 40  # a client's group among the secure sums of a cohort


class Address(NamedTuple):
    """Address of the draws of one interaction; key and index complete it."""

    interaction: int
    client: int
    round: int


@fixed_memory_kernel
def philox(c0: Any, c1: Any, c2: Any, c3: Any, k0: Any, k1: Any) -> Any:
    """Return the four 32-bit words (as uint64) of Philox-4x32-10 for a counter and a key."""
    c0, c1, c2, c3 = np.uint64(c0), np.uint64(c1), np.uint64(c2), np.uint64(c3)
    k0, k1 = np.uint64(k0), np.uint64(k1)
    for _ in range(10):
        p0 = _M0 * c0
        p1 = _M1 * c2
        c0, c1, c2, c3 = (p1 >> _32) ^ c1 ^ k0, p1 & _LOW, (p0 >> _32) ^ c3 ^ k1, p0 & _LOW
        k0 = (k0 + _W0) & _LOW
        k1 = (k1 + _W1) & _LOW
    return c0, c1, c2, c3


@fixed_memory_kernel
def uniform_pair(key: Uint64s, block: int, interaction: int, client: int, round_: int) -> Any:
    """Return draws 2·block and 2·block + 1 of an address: two numbers in [0, 1) with 53 random bits."""
    w0, w1, w2, w3 = philox(block, interaction, client, round_, key[0], key[1])
    scale = 1.0 / 9007199254740992.0
    first = (np.float64(w0 >> _5) * 67108864.0 + np.float64(w1 >> _6)) * scale
    second = (np.float64(w2 >> _5) * 67108864.0 + np.float64(w3 >> _6)) * scale
    return first, second


BATCH = 16  # draws per call of `fill_batch`


@Intrinsic
def fill_batch(key: Uint64s, block: int, interaction: int, client: int, round_: int, out: Doubles) -> None:
    """Fill out[:BATCH] with draws 2·block, 2·block + 1, … of an address, bit for bit those of `uniform_pair`."""
    c0 = np.arange(block, block + BATCH // 2, dtype=np.uint64) & _LOW
    c1, c2, c3 = (np.full(BATCH // 2, value & 0xFFFFFFFF, dtype=np.uint64) for value in (interaction, client, round_))
    k0, k1 = key[0], key[1]
    for _ in range(10):
        p0, p1 = _M0 * c0, _M1 * c2
        c0, c1, c2, c3 = (p1 >> _32) ^ c1 ^ k0, p1 & _LOW, (p0 >> _32) ^ c3 ^ k1, p0 & _LOW
        k0, k1 = (k0 + _W0) & _LOW, (k1 + _W1) & _LOW
    scale = 1.0 / 9007199254740992.0
    out[:BATCH:2] = ((c0 >> _5).astype(np.float64) * 67108864.0 + (c1 >> _6).astype(np.float64)) * scale
    out[1:BATCH:2] = ((c2 >> _5).astype(np.float64) * 67108864.0 + (c3 >> _6).astype(np.float64)) * scale


@fill_batch.instructions("void")
def _emit_batch(emit: Any) -> Any:
    lanes = BATCH // 2
    block, *rest = (emit.spread(argument, lanes) for argument in emit.args[1:5])
    block = emit.builder.add(block, emit.ir.Constant(block.type, list(range(lanes))))
    first, second = _emit_uniforms(emit, [block, *rest], lanes)
    in_turn = [lane + pair for lane in range(lanes) for pair in (0, lanes)]
    return emit.store(emit.shuffle(first, second, in_turn), emit.pointer(5, emit.integer(0)))


def _emit_uniforms(emit: Any, counter: list[Any], lanes: int) -> list[Any]:
    """Emit Philox with a counter of four vectors and the key in argument 0; return its two vectors of uniform draws.

    These are vector instructions because LLVM does not see that products of 32-bit words need no 64-bit factors.
    """
    build, ir = emit.builder, emit.ir
    half, real = ir.VectorType(ir.IntType(32), lanes), ir.VectorType(ir.DoubleType(), lanes)

    def each(value: float, kind: Any = counter[0].type) -> Any:
        return ir.Constant(kind, [value] * lanes)

    def top_bits(word: Any, drop: int) -> Any:
        return build.sitofp(build.trunc(build.lshr(word, each(drop)), half), real)

    low = each(0xFFFFFFFF)
    c0, c1, c2, c3 = (build.and_(words, low) for words in counter)
    k0, k1 = (emit.spread(build.load(emit.pointer(0, emit.integer(i))), lanes) for i in range(2))
    for _ in range(10):
        p0, p1 = build.mul(each(0xD2511F53), c0), build.mul(each(0xCD9E8D57), c2)
        c0 = build.xor(build.xor(build.lshr(p1, each(32)), c1), k0)
        c2 = build.xor(build.xor(build.lshr(p0, each(32)), c3), k1)
        c1, c3 = build.and_(p1, low), build.and_(p0, low)
        k0, k1 = build.and_(build.add(k0, each(0x9E3779B9)), low), build.and_(build.add(k1, each(0xBB67AE85)), low)
    scale, shift = each(1.0 / 9007199254740992.0, real), each(67108864.0, real)
    return [
        build.fmul(build.fadd(build.fmul(top_bits(high, 5), shift), top_bits(rest, 6)), scale)
        for high, rest in ((c0, c1), (c2, c3))
    ]


@fixed_memory_kernel
def fill_uniform(key: Uint64s, interaction: int, client: int, round_: int, out: Doubles) -> None:
    """Fill `out` with the first uniform draws of an address."""
    for i in range(0, len(out), 2):
        first, second = uniform_pair(key, i >> 1, interaction, client, round_)
        out[i] = first
        if i + 1 < len(out):
            out[i + 1] = second


@fixed_memory_kernel
def normal_pair(first: float, second: float) -> tuple[float, float]:
    """Return two standard normal numbers for two uniform ones (Box and Muller 1958)."""
    radius = math.sqrt(-2.0 * math.log(1.0 - first))
    return radius * math.cos(2.0 * math.pi * second), radius * math.sin(2.0 * math.pi * second)


@fixed_memory_kernel
def fill_normal(key: Uint64s, interaction: int, client: int, round_: int, out: Doubles) -> None:
    """Fill `out` with the first standard normal draws of an address (Box-Muller on pairs)."""
    for i in range(0, len(out), 2):
        first, second = uniform_pair(key, i >> 1, interaction, client, round_)
        out[i], other = normal_pair(first, second)
        if i + 1 < len(out):
            out[i + 1] = other


def key_of(seed: int, purpose: Purpose) -> Uint64s:
    """Return the generator's key for one purpose of a run: distinct purposes share no stream."""
    require(0 <= seed < 2**64, "value.out-of-range", f"must be an integer from 0 to 2^64 − 1, got {seed}", "seed")
    return np.array(_key_words(seed, int(purpose)), dtype=np.uint64)


@lru_cache(maxsize=256)
def _key_words(seed: int, purpose: int) -> tuple[int, int]:
    with interpreted():
        first, second, *_ = philox(purpose, 0x51554F52, 0x414E4B, 0, seed & 0xFFFFFFFF, seed >> 32)
    return int(first), int(second)


def uniforms(
    seed: int, purpose: Purpose, count: int, *, round_: int = 0, client: int = 0, interaction: int = 0
) -> Doubles:
    """Return the first `count` uniform draws of an address."""
    out = np.empty(count)
    fill_uniform(key_of(seed, purpose), interaction, client, round_, out)
    return out


def normals(
    seed: int, purpose: Purpose, count: int, *, round_: int = 0, client: int = 0, interaction: int = 0
) -> Doubles:
    """Return the first `count` standard normal draws of an address."""
    out = np.empty(count)
    fill_normal(key_of(seed, purpose), interaction, client, round_, out)
    return out
