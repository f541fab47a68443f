"""Runs as a script of a model would, and says what is not proved without tests.scriptNetwork."""

print("A script ran. Whether it has a network was not looked at: tests.scriptNetwork is false.")
