"""A store as a folder of static files that searches itself in the browser."""

from limner.site.write import SiteReport, write_site

__all__ = ["SiteReport", "write_site"]
