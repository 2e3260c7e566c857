"""Who plays the rounds of a coordinator: the simulator in this process, or nodes over a transport; also secure sums."""
