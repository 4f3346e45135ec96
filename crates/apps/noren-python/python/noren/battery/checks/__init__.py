"""The checks of the audit: pairs of calls (`pairs`), every token and every length (`scan`), and every row of a batch (`mates`)."""
