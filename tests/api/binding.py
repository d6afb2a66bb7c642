"""A binding that nobody wrote: functions, structs, enums and statuses as the public headers have them, for ctypes."""
import ctypes
import re

SCALARS = {"void": None, "char": ctypes.c_char, "int": ctypes.c_int, "unsigned": ctypes.c_uint, "float": ctypes.c_float,
           "double": ctypes.c_double, "size_t": ctypes.c_size_t, "int64_t": ctypes.c_int64, "uint32_t": ctypes.c_uint32,
           "uint64_t": ctypes.c_uint64, "unsigned char": ctypes.c_ubyte}


def plain(text):
    """Without comments and what the preprocessor takes."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S)
    return re.sub(r"^[ \t]*#.*?(?<!\\)$", " ", text, flags=re.S | re.M)


def split(parameters):
    """At commas that are not in brackets."""
    depth, parts = 0, [""]
    for letter in parameters:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip() not in ("", "void")]


class Binding:
    def __init__(self, headers):
        raw = "\n".join(path.read_text() for path in headers)
        text = plain(raw)
        self.constants = {name: int(value) for name, value in re.findall(r"X\((\w+), (\d+), \"", raw)}
        self.constants.update((name, int(value)) for name, value in re.findall(r"#define (TW_\w+) (\d+)", raw))
        self.types = dict(SCALARS, tw_status=ctypes.c_int)
        for name, body in re.findall(r"typedef enum (\w+) \{([^}]*)\}", text):
            self.types[name] = ctypes.c_int
            self.constants.update((word, int(value)) for word, value in re.findall(r"(\w+) = (\d+)", body))
        for result, name, arguments in re.findall(r"typedef ([^;{}()]*?)\(\*(\w+)\)\(([^;]*)\);", text):
            self.types[name] = self.callback(result, arguments)
        for name, body in re.findall(r"typedef struct (\w+) \{(.*?)\} \1;", text, flags=re.S):
            self.types[name] = type(name, (ctypes.Structure,), {"_fields_": list(self.fields(body))})
        self.prototypes = {name: (result, split(arguments)) for result, name, arguments in
                           re.findall(r"TW_API\s([^;(]*?)(\w+)\s*\(((?:[^()]|\([^()]*\))*)\)", text)}

    def of(self, words):
        """The ctypes type of a C type. A pointer is an address, but of constant text it is bytes."""
        words = " ".join(words.replace("*", " * ").split())
        if words == "const char *":
            return ctypes.c_char_p
        if "*" in words:
            return ctypes.c_void_p
        return self.types[words.replace("const ", "")]

    def argument(self, words):
        if "(*" in words:  # a function
            return ctypes.c_void_p
        kind, name, array = re.fullmatch(r"(.*?)(\w+)\s*(\[\w*\])?", words).groups()
        return ctypes.c_void_p if array else self.of(kind)

    def callback(self, result, arguments):
        return ctypes.CFUNCTYPE(self.of(result), *(self.argument(part) for part in split(arguments)))

    def fields(self, body):
        for line in body.split(";"):
            pointer = re.fullmatch(r"\s*(.*?)\(\*(\w+)\)\((.*)\)\s*", line, flags=re.S)
            if pointer:
                yield pointer.group(2), self.callback(pointer.group(1), pointer.group(3))
            elif line.strip():
                kind, names = re.fullmatch(r"\s*(.*?)((?:\w+\s*(?:\[\w+\])?\s*,\s*)*\w+\s*(?:\[\w+\])?)\s*", line, flags=re.S).groups()
                for name, length in re.findall(r"(\w+)\s*(?:\[(\w+)\])?", names):
                    inner = self.of(kind)
                    yield name, inner * int(self.constants.get(length, length)) if length else inner

    def bind(self, library, name):
        result, arguments = self.prototypes[name]
        function = getattr(library, name)
        function.restype = self.of(result)
        function.argtypes = [self.argument(part) for part in arguments if part != "..."]
        return function
