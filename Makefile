# The same jobs as tasks.py, for those who type make.
.PHONY: demo test check fuzz bench format package

demo test check fuzz bench format package:
	python3 tasks.py $@
