"""The environments of the structured designer, as text.

Each module here is one family's program with example parameters. The compiler in
`designer.families.compiler` reads it as text, puts the shared `game` module in place of the
import, and writes a specification's parameters over the example ones. The result is standard
library Python in one string; nothing here is imported at run time by the designer.
"""
