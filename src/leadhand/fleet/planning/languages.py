"""Languages that the repository map knows: endings, definitions and imports. Pure data.

Definitions are found by tree-sitter where the extra `map` is installed: `QUERIES` name the nodes,
with the kind of the symbol as the name of the capture. Without the extra, `DEFINITIONS` are light
patterns, line by line: they miss what is written in an unusual way, and do not know where a string
ends. Imports are found by `IMPORTS` in either case; what names no file of the repository is left
out.
"""

from __future__ import annotations

import re

ENDINGS = {
    "py": "python",
    "pyi": "python",
    "js": "javascript",
    "mjs": "javascript",
    "cjs": "javascript",
    "jsx": "javascript",
    "ts": "typescript",
    "mts": "typescript",
    "cts": "typescript",
    "tsx": "tsx",
    "go": "go",
    "rs": "rust",
    "java": "java",
    "rb": "ruby",
    "c": "c",
    "h": "c",
    "cc": "cpp",
    "cpp": "cpp",
    "cxx": "cpp",
    "hh": "cpp",
    "hpp": "cpp",
    "php": "php",
    "cs": "c_sharp",
}
"""Languages whose symbols are read."""
OTHERS = {
    "md": "markdown",
    "rst": "restructuredtext",
    "toml": "toml",
    "yaml": "yaml",
    "yml": "yaml",
    "json": "json",
    "html": "html",
    "css": "css",
    "scss": "css",
    "sh": "shell",
    "sql": "sql",
    "proto": "protobuf",
    "kt": "kotlin",
    "swift": "swift",
    "scala": "scala",
    "vue": "vue",
    "svelte": "svelte",
}
"""Languages that are only counted."""

GRAMMARS = {
    "python": ("tree_sitter_python", "language"),
    "javascript": ("tree_sitter_javascript", "language"),
    "typescript": ("tree_sitter_typescript", "language_typescript"),
    "tsx": ("tree_sitter_typescript", "language_tsx"),
    "go": ("tree_sitter_go", "language"),
    "rust": ("tree_sitter_rust", "language"),
    "java": ("tree_sitter_java", "language"),
    "ruby": ("tree_sitter_ruby", "language"),
    "c": ("tree_sitter_c", "language"),
    "cpp": ("tree_sitter_cpp", "language"),
    "php": ("tree_sitter_php", "language_php"),
    "c_sharp": ("tree_sitter_c_sharp", "language"),
}
"""The package of a grammar, and its function."""

_JAVASCRIPT = """
(class_declaration name: (_) @class)
(function_declaration name: (identifier) @function)
(generator_function_declaration name: (identifier) @function)
(method_definition name: (property_identifier) @method)
(program (lexical_declaration (variable_declarator name: (identifier) @constant)))
(program (variable_declaration (variable_declarator name: (identifier) @constant)))
(program (export_statement (lexical_declaration
  (variable_declarator name: (identifier) @constant))))
(assignment_expression left: (member_expression property: (property_identifier) @function)
  right: [(function_expression) (arrow_function)])
"""
_TYPESCRIPT = (
    _JAVASCRIPT
    + """
(abstract_class_declaration name: (_) @class)
(interface_declaration name: (_) @interface)
(type_alias_declaration name: (_) @type)
(enum_declaration name: (_) @enum)
(function_signature name: (identifier) @function)
"""
)
_C = """
(function_definition declarator: (function_declarator declarator: (identifier) @function))
(function_definition declarator: (pointer_declarator
  declarator: (function_declarator declarator: (identifier) @function)))
(translation_unit (declaration declarator: (function_declarator
  declarator: (identifier) @function)))
(struct_specifier name: (type_identifier) @struct body: (_))
(enum_specifier name: (type_identifier) @enum body: (_))
(type_definition declarator: (type_identifier) @type)
(preproc_def name: (identifier) @macro)
(preproc_function_def name: (identifier) @macro)
"""
QUERIES = {
    "python": """
(class_definition name: (identifier) @class)
(function_definition name: (identifier) @function)
(module (expression_statement (assignment left: (identifier) @constant)))
""",
    "javascript": _JAVASCRIPT,
    "typescript": _TYPESCRIPT,
    "tsx": _TYPESCRIPT,
    "go": """
(function_declaration name: (identifier) @function)
(method_declaration name: (field_identifier) @method)
(type_spec name: (type_identifier) @type)
(source_file (const_declaration (const_spec name: (identifier) @constant)))
(source_file (var_declaration (var_spec name: (identifier) @constant)))
""",
    "rust": """
(struct_item name: (type_identifier) @struct)
(enum_item name: (type_identifier) @enum)
(trait_item name: (type_identifier) @trait)
(type_item name: (type_identifier) @type)
(function_item name: (identifier) @function)
(macro_definition name: (identifier) @macro)
(const_item name: (identifier) @constant)
""",
    "java": """
(class_declaration name: (identifier) @class)
(interface_declaration name: (identifier) @interface)
(enum_declaration name: (identifier) @enum)
(record_declaration name: (identifier) @class)
(method_declaration name: (identifier) @method)
""",
    "ruby": """
(class name: (constant) @class)
(module name: (constant) @module)
(method name: (identifier) @method)
(singleton_method name: (identifier) @method)
""",
    "c": _C,
    "cpp": _C
    + """
(class_specifier name: (type_identifier) @class body: (_))
(function_definition declarator: (function_declarator
  declarator: (qualified_identifier name: (identifier) @method)))
(function_definition declarator: (function_declarator declarator: (field_identifier) @method))
""",
    "php": """
(class_declaration name: (name) @class)
(interface_declaration name: (name) @interface)
(trait_declaration name: (name) @trait)
(function_definition name: (name) @function)
(method_declaration name: (name) @method)
""",
    "c_sharp": """
(class_declaration name: (identifier) @class)
(interface_declaration name: (identifier) @interface)
(struct_declaration name: (identifier) @struct)
(enum_declaration name: (identifier) @enum)
(record_declaration name: (identifier) @class)
(method_declaration name: (identifier) @method)
""",
}

_JS_DEFINED = (
    rb"^[ \t]*(?:export\s+)?(?:default\s+)?(?:abstract\s+)?(?P<class>class)\s+(\w+)"
    rb"|^[ \t]*(?:export\s+)?(?:default\s+)?(?:async\s+)?(?P<function>function)\b\s*\*?\s*(\w+)"
    rb"|^(?:export\s+)?(?P<constant>const|let|var)\s+(\w+)\s*="
    rb"|^(?:export\s+)?(?:declare\s+)?(?P<type>interface|type|enum)\s+(\w+)"
    rb"|^[\w.]+\.(?P<method>)(\w+)\s*=\s*(?:async\s+)?function\b"
)
_C_DEFINED = (
    rb"^(?:typedef\s+)?(?P<struct>struct|class|enum|union)\s+(\w+)\s*(?:[:{]|$)"
    rb"|^#[ \t]*(?P<macro>define)\s+(\w+)"
    rb"|^(?!return|else|typedef|if)(?:[\w:<>]+[ \t*&]+)+(?P<function>)"
    rb"(?:\w+::)?(\w+)[ \t]*\([^;\n]*$"
)
_MEMBERS = (
    rb"(?:(?:public|private|protected|internal|static|final|abstract|async|override|virtual"
    rb"|sealed|partial|readonly)\s+)*"
)
DEFINITIONS = {
    "python": (
        rb"^[ \t]*(?P<class>class)\s+(\w+)|^[ \t]*(?:async\s+)?(?P<function>def)\s+(\w+)"
        rb"|^(?P<constant>)([A-Z_][A-Z0-9_]*)\s*(?::[^=\n]+)?="
    ),
    "javascript": _JS_DEFINED,
    "typescript": _JS_DEFINED,
    "tsx": _JS_DEFINED,
    "go": (
        rb"^func\s+(?:\([^)]*\)\s*)?(?P<function>)(\w+)|^(?P<type>type)\s+(\w+)"
        rb"|^(?P<constant>const|var)\s+(\w+)"
    ),
    "rust": (
        rb"^[ \t]*(?:pub(?:\([^)]*\))?\s+)?(?:async\s+|unsafe\s+|const\s+|extern\s+\"C\"\s+)*"
        rb"(?P<function>fn)\s+(\w+)"
        rb"|^[ \t]*(?:pub(?:\([^)]*\))?\s+)?(?P<struct>struct|enum|trait|type|union)\s+(\w+)"
        rb"|^[ \t]*(?P<macro>macro_rules!)\s*(\w+)"
    ),
    "java": (
        rb"^[ \t]*" + _MEMBERS + rb"(?P<class>class|interface|enum|record)\s+(\w+)"
        rb"|^[ \t]+(?:public|private|protected|static)\s+[\w<>\[\], ]+\s(?P<method>)(\w+)\s*\("
    ),
    "ruby": (
        rb"^[ \t]*(?P<class>class|module)\s+(?:\w+::)*(\w+)"
        rb"|^[ \t]*(?P<method>def)\s+(?:self\.)?(\w+)"
    ),
    "c": _C_DEFINED,
    "cpp": _C_DEFINED,
    "php": (
        rb"^[ \t]*(?:abstract\s+|final\s+)*(?P<class>class|interface|trait)\s+(\w+)"
        rb"|^[ \t]*" + _MEMBERS + rb"(?P<function>function)\s+&?(\w+)"
    ),
    "c_sharp": (
        rb"^[ \t]*" + _MEMBERS + rb"(?P<class>class|interface|struct|enum|record)\s+(\w+)"
        rb"|^[ \t]+(?:public|private|protected|internal)\s+[\w<>\[\], ?]+\s(?P<method>)(\w+)\s*\("
    ),
}

_JS_IMPORTED = rb"""(?:\bfrom|\bimport|\brequire\s*\(|\bimport\s*\()\s*["']([^"'\n]+)["']"""
IMPORTS = {
    "python": (
        rb"^[ \t]*(?:from[ \t]+(\.*[\w.]*)[ \t]+import[ \t]+(\([^)]{0,4000}\)|[^\n#]+)"
        rb"|import[ \t]+([\w., \t]+))"
    ),
    "javascript": _JS_IMPORTED,
    "typescript": _JS_IMPORTED,
    "tsx": _JS_IMPORTED,
    "go": rb"""^[ \t]*(?:import\s+)?(?:[\w.]+\s+)?"([\w./-]+)"[ \t]*$""",
    "rust": rb"^[ \t]*(?:pub\s+)?(?:use|mod)\s+([\w:]+)",
    "java": rb"^import\s+(?:static\s+)?([\w.]+)",
    "ruby": rb"""^[ \t]*require(?:_relative)?[ \t(]+["']([^"']+)["']""",
    "c": rb"""^[ \t]*#[ \t]*include[ \t]+["<]([^">]+)[">]""",
    "cpp": rb"""^[ \t]*#[ \t]*include[ \t]+["<]([^">]+)[">]""",
    "php": rb"^[ \t]*use\s+([\w\\]+)",
    "c_sharp": rb"^[ \t]*using\s+(?:static\s+)?([\w.]+)",
}

COMPILED_DEFINITIONS = {name: re.compile(rule, re.MULTILINE) for name, rule in DEFINITIONS.items()}
COMPILED_IMPORTS = {name: re.compile(rule, re.MULTILINE) for name, rule in IMPORTS.items()}


def language_of(path: str) -> str:
    """Return the language of a file by the ending of its name; empty if it is none we know."""
    name = path.rpartition("/")[2]
    ending = name.rpartition(".")[2].lower() if "." in name else ""
    return ENDINGS.get(ending) or OTHERS.get(ending, "")
