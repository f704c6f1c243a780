// An archive that is not what symbols_check.py thinks it is.

int nothing_of_ours = 0;
