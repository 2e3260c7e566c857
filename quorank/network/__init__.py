"""The same federation on real machines: a coordinator, a driver, a transport, and Flower as one engine below them.

`transport` says what an engine must do; `driver` plays a coordinator's rounds over any transport; `loopback` brings up
a whole network on one machine; `flower_*` are the only modules that know Flower.
"""
