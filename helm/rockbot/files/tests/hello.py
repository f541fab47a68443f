"""A script without network checks, for tests.scriptNetwork: false."""

print("A script ran. Its network access was not checked: tests.scriptNetwork is false.")
