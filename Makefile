# The same jobs as tasks.py, for those who type make.
.PHONY: demo test check fuzz bench format

demo test check fuzz bench format:
	python3 tasks.py $@
