# The same jobs as tasks.py, for those who type make.
.PHONY: demo test check bench format

demo test check bench format:
	python3 tasks.py $@
