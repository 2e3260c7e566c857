"""What a coordinator keeps: its checkpoint, and the journal of the open round."""
