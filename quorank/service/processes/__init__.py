"""The processes of a service: who starts and watches over them, and the files that a machine needs to."""
