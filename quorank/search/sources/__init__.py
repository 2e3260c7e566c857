"""Where documents come from: folders, mail, browsers."""
