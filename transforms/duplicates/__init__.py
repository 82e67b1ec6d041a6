"""Pictures that are in a data set more than once, exactly or nearly."""
