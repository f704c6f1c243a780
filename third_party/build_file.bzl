"""The BUILD file of a repository whose targets are made by a macro of ours.

A macro knows what cohort and its repositories are called where it runs; a BUILD file that lies in another repository does not.
And a repository is fetched again when a file that its rule read has changed, but not when a macro has.
"""

visibility("//third_party/...")

def build_file(bzl, macro, **arguments):
    """Returns the text of a BUILD file that calls one macro.

    Args:
      bzl: Label of the file that defines the macro.
      macro: its name.
      **arguments: strings that it is called with.
    """
    call = ", ".join(["{} = {}".format(name, repr(value)) for name, value in arguments.items()])
    return "load(\"{0}\", \"{1}\")\n\n{1}({2})\n".format(bzl, macro, call)
