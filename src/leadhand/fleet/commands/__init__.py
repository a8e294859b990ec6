"""`leadhand fleet`: the commands of the coding fleet."""
