"""The demo: generated people, a baseline that knows colours only, and the whole way from drawing to searching.

Imported by nothing but the command line.
"""
