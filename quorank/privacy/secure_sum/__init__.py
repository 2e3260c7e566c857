"""Secure sums: a server learns the sum of a cohort's vectors modulo 2^32 and nothing else about them.

The protocol is that of Bonawitz et al. 2017, "Practical secure aggregation for privacy-preserving machine learning", on
the sparse graph of Bell et al. 2020, without any transport:

- `client` and `server` are the two roles, messages in and messages out;
- `messages` are the bytes between them, `graph` holds the roster of clients and defines neighbours, holders of shares
  and tolerated colluders, `masks` makes masks, commitments and sealed shares from keys, `shamir` splits secrets;
- `in_process` plays the whole protocol in one process.

`quorank.protocol.secure_identity` guards clients against a server that lies: signed keys, and a least number of survivors.

A refusal has a code that begins with `secure-sum.`.
"""
