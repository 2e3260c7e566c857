"""Cross-silo learning to rank (CS-F-LTR): organisations train one ranker without showing documents or queries."""
