"""One module for each board: its value `BOARD` is found and written by `make dashboards`."""
