"""The documentation site: pages of docs/, their links and code, the reference written from the code, and the build."""
