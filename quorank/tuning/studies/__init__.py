"""Field studies: arms, planning by power, rehearsal on simulated people, analysis."""
