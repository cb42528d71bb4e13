"""Torture of stores, runs and servers from outside: kills, full disks, clocks that go back, writers at once, bad files.

Everything goes through the command line, HTTP and the public library, as a user's would. Each part returns an
`Outcome`: counts, and findings, of which there should be none.
"""
