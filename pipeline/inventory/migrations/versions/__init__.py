"""One file per revision; a revision that has been released is never edited."""
