# The same jobs as tasks.py, for those who type make.
.PHONY: demo check bench format

demo check bench format:
	python3 tasks.py $@
