"""Reports: finished runs as tables, curves and pages."""
