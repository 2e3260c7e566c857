"""An organisation's side on a network: its folder and keys, its answers to the coordinator, the line to the service."""
