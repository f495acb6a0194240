"""What a build really read: the files and tools behind each object and the library.

The compilers report the files they opened (depfiles) and the linker the ones it linked (--trace).
What neither reports is where they would have looked first: a header that appears there later
would be read instead. Those places are recorded as absent.
"""

import functools
import itertools
import os
import re
import shlex
import subprocess

from _jit_loader import toolchain

HAS_INCLUDE = re.compile(r'__has_include\w*\s*\(\s*[<"]([^>"\n]+)[>"]')
HEADER_MACRO = re.compile(r'^\s*#\s*define\s+\w+\s+[<"]([^>"\n]+)[>"]', re.MULTILINE)
INCLUDE_UPWARDS = re.compile(r'^\s*#\s*include\w*\s*[<"]([^>"\n]*\.\./[^>"\n]+)[>"]', re.MULTILINE)
FOLDER_FLAG = re.compile(r"-L|--library-(?:path|directory)(?:=|$)")
LIBRARY_FLAG = re.compile(r"-l|--library(?:=|$)")


def read_depfile(path, folder):
    """Absolute paths of the prerequisites in a Makefile fragment that a compiler wrote."""
    with open(path, encoding=None, errors="surrogateescape") as file:
        text = file.read().replace("\\\n", " ")
    _, _, rest = text.partition(": ")
    prerequisites, *_ = rest.split("\n", 1)  # -MP adds a rule for each of them, with nothing in it
    words = re.findall(r"(?:\\.|[^\s\\])+", prerequisites)
    names = [re.sub(r"\\([ \t#\\:])", r"\1", word).replace("$$", "$") for word in words]
    return list(dict.fromkeys(plain_path(os.path.join(folder, name)) for name in names))


def plain_path(path):
    """The path without '..', unless a symlink makes that another file."""
    normal = os.path.normpath(path)
    if normal != path and ".." in path and not _same_file(normal, path):
        return path
    return normal


def _same_file(one, other):
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


def linked_files(trace, folder):
    """Absolute paths of the libraries and objects from outside the folder that were linked."""
    found = {}
    folders = folder, os.path.realpath(folder)  # the cache may be behind a symlink
    for line in trace:
        # A member of an archive: (libx.a)member.o by one linker, libx.a(member.o) by others.
        name = re.sub(r"^\((.*?)\).*$|\([^()]*\)$", r"\1", line.strip())
        path = os.path.join(folder, name)
        if name and os.path.isfile(path):
            inside = os.path.dirname(plain_path(path)) == folder
            path = plain_path(os.path.realpath(path) if inside else path)
            if os.path.dirname(path) not in folders:
                found[path] = None
    return list(found)


class CompilerFacts:
    """Where a compile command looks for headers, in order, and which real programs it runs."""

    def __init__(self, search_folders, tools):
        self.search_folders = search_folders
        self.tools = tools


def cxx_facts(command):
    """Asks g++ or clang++ (or what wraps it) about the command of one compilation."""
    words = _without_inputs_and_outputs(command)
    search_folders, tools = _ask_preprocessor(words)
    tools += [_program(command, name) for name in toolchain.HELPERS]
    return CompilerFacts(search_folders, [tool for tool in tools if tool])


def nvcc_facts(command):
    """Asks nvcc (or what wraps it) about the command of one compilation.

    Only nvcc knows all the spellings of its flags, and those that the environment adds: it says
    with what flags it would run the host compiler as the preprocessor.
    """
    flags = _without_inputs_and_outputs(command[len(_programs(command)) :])
    output = _dry_run([_programs(command)[-1], *flags])
    top = re.search(r"^#\$ TOP=(.*)$", output, re.MULTILINE)
    host = _host_preprocessor(output)
    search_folders, tools = _ask_preprocessor(host)
    tools.append(toolchain.find_program(host[0]))  # which may be a script that runs the real one
    names = ["bin/nvcc", "bin/cudafe++", "bin/ptxas", "bin/fatbinary", "nvvm/bin/cicc"]
    names += ["bin/nvcc.profile", "nvvm/libdevice/libdevice.10.bc"]
    top = top[1].strip() if top else ""
    tools += [plain_path(os.path.join(top, name)) for name in names]
    tools = dict.fromkeys(tool for tool in tools if tool and os.path.isfile(tool))
    return CompilerFacts(search_folders, list(tools))


def _host_preprocessor(dry_run):
    """The words of the host compiler's command in what nvcc prints, without input and output."""
    line = re.search(r"^#\$ (.* -E -x c\+\+ .*) -include \S*cuda_runtime\.h", dry_run, re.MULTILINE)
    return _split(line[1]) if line else ["gcc"]


def nvcc_top(nvcc):
    """The CUDA Toolkit's folder, as nvcc itself says it: a script on PATH may lie elsewhere."""
    match = re.search(r"^#\$ TOP=(.*)$", _dry_run([nvcc]), re.MULTILINE)
    return plain_path(match[1].strip()) if match else None


def _dry_run(nvcc):
    return _run([*nvcc, "-v", "--dryrun", "-c", "-x", "cu", os.devnull, "-o", os.devnull])


def named_files(command):
    """Absolute paths of files that the flags name: @file, -include, a linker script, a library.

    And of those that the flags in an @file name.
    """
    found = {}
    words = command[1:]
    for word in words:  # to which the loop adds
        for part in re.split("[=,]", word):
            path = plain_path(part.removeprefix("@"))
            if os.path.isabs(path) and os.path.isfile(path) and path not in found:
                found[path] = None
                words += _split(read_text(path)) if part.startswith("@") else []
    return list(found)


def _expanded(words, within=()):
    """Yields the words with those of an @file in its place, as compilers and linkers read them."""
    for word in words:
        path = word.removeprefix("@")
        if path != word and os.path.isabs(path) and os.path.isfile(path) and path not in within:
            yield from _expanded(_split(read_text(path)), (*within, path))
        else:
            yield word


def _split(text):
    """The words of a text, as a shell reads them."""
    try:
        return shlex.split(text)
    except ValueError:  # a quote without an end
        return text.split()


def shadows(files, chain):
    """Where the compiler would have looked before it found a file.

    chain: the folders of the search, in order; first those of the including files, where a quoted
    include looks first. One that is in both parts has two places: a file in it may have been found
    from either.

    Returns {folder: names} of what is not there, and the list of what is there and was not read.
    """
    absent, present = {}, {}
    lacks = set()  # (folder, first part of a name) for which the folder has no such entry
    exists = functools.cache(os.path.exists)
    read = set(files)
    for path in files:
        for position, folder in enumerate(chain):
            if not path.startswith(folder + "/"):
                continue
            name = path[len(folder) + 1 :]
            first = name.partition("/")[0]
            for earlier in chain[:position]:
                if (earlier, first) in lacks:
                    continue
                candidate = f"{earlier}/{name}"
                missing = _first_missing(candidate, exists)
                _add_absent(absent, missing)
                if not missing:
                    if candidate not in read:
                        present[candidate] = None
                elif len(missing[0][0]) <= len(earlier) and not missing[0][1].endswith("/"):
                    lacks.add((earlier, first))
    return absent, list(present)


def library_shadows(files, command):
    """The same for libraries: -l looks through the -L folders, in each for .so, then for .a.

    The folders are the compiler's, those of LIBRARY_PATH and the linker's own (-Wl,-L): g++ passes
    them on in this order, clang++ LIBRARY_PATH last. Then come the system's. A relative one is in
    the private folder of the build, where nothing appears later.
    """
    words, linker_words = _link_words(command)
    variable = os.environ.get("LIBRARY_PATH", "").split(os.pathsep)
    folders = [*_values(words, FOLDER_FLAG), *variable]
    folders += [*_values(linker_words, FOLDER_FLAG), *variable]
    folders = [os.path.normpath(folder) for folder in folders if os.path.isabs(folder)]
    asked = _values(words + linker_words, LIBRARY_FLAG)
    whole_names = {name[1:] for name in asked if name.startswith(":")}
    absent, present = {}, []
    for path in files:
        folder, name = os.path.split(path)
        earlier = dict.fromkeys(_before_last(folders, folder))
        candidates = []
        if name in whole_names:
            candidates += [os.path.join(before, name) for before in earlier]
        if match := re.fullmatch(r"(lib.+)\.(so|a)", name):
            names = match[1] + ".so", match[1] + ".a"
            candidates += [os.path.join(before, name) for before in earlier for name in names]
            if match[2] == "a":
                candidates.append(os.path.join(folder, names[0]))
        for candidate in candidates:
            missing = _first_missing(candidate)
            _add_absent(absent, missing)
            if not missing:
                present.append(candidate)
    return absent, present


def _link_words(command):
    """The words of a link command, and those among them that are for the linker alone."""
    words, linker_words = [], []
    rest = _expanded(command)
    for word in rest:
        if word.startswith("-Wl,"):
            linker_words += word.split(",")[1:]
        elif word == "-Xlinker":
            linker_words.append(next(rest, ""))
        else:
            words.append(word)
    return words, list(_expanded(linker_words))


def _values(words, flag):
    """What follows each of a flag, in the same word or as the next one."""
    rest = iter(words)
    matches = ((word, flag.match(word)) for word in rest)
    return [word[match.end() :] or next(rest, "") for word, match in matches if match]


def _before_last(folders, folder):
    """The folders before the last place of one, without that one; all where it has no place."""
    places = [position for position, each in enumerate(folders) if each == folder]
    return [each for each in folders[: places[-1] if places else None] if each != folder]


def optional_headers(own, search_folders):
    """What the user's files ask for by __has_include, or include from a folder further up.

    No compiler lists the former unless it is included too; and shadows() knows the latter by no
    name that could be looked for in an earlier folder.

    Returns {folder: names} of what is not there, and the list of what is asked for and there.
    """
    texts = {path: text for path in own if (text := read_text(path))}
    by_macro = []
    if any(re.search(r"__has_include\w*\s*\(\s*\w", text) for text in texts.values()):
        by_macro = [name for text in texts.values() for name in HEADER_MACRO.findall(text)]
    absent, present = {}, []
    for path, text in texts.items():
        folders = [os.path.dirname(path), *search_folders]
        asked = HAS_INCLUDE.findall(text) + by_macro
        for name in dict.fromkeys(asked + INCLUDE_UPWARDS.findall(text)):
            for folder in folders:
                candidate = plain_path(os.path.join(folder, name))
                missing = _first_missing(candidate)
                _add_absent(absent, missing)
                if missing:
                    continue
                if name in asked:
                    present.append(candidate)
                else:
                    break
    return absent, list(filter(os.path.isfile, dict.fromkeys(present)))


def read_text(path):
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _first_missing(path, exists=os.path.exists):
    """[(existing folder, name missing in it)] on the way to a file; [] where there is one.

    More than one where the name is a link that leads nowhere: where its target is missing. A name
    with a slash is that of a folder, in whose place the file is missing.
    """
    if exists(path):
        folder, name = os.path.split(path)
        return [(folder, name + "/")] if os.path.isdir(path) else []
    found = []
    while True:
        while not exists(os.path.dirname(path)):
            path = os.path.dirname(path)
        place = os.path.split(path)
        if place in found:
            return found  # links that lead to each other
        found.append(place)
        if not os.path.islink(path):
            return found
        path = plain_path(os.path.join(place[0], os.readlink(path)))


def _add_absent(absent, missing):
    for folder, name in missing:
        absent.setdefault(folder, set()).add(name)


def _ask_preprocessor(words):
    """(search folders, paths of the real compiler) from what `c++ -v -E` prints.

    Both g++ and its cc1plus: where a wrapper calls g++ and that becomes another version, the old
    cc1plus may stay as it is.
    """
    output = _run([*words, "-v", "-E", "-x", "c++", os.devnull, "-o", os.devnull])
    missing = re.findall(r'^ignoring nonexistent directory "(.*)"$', output, re.MULTILINE)
    listed = re.search(r"search starts here:\n(.*)End of search list", output, re.DOTALL)
    found = re.findall(r"^ (\S.*)$", listed[1], re.MULTILINE) if listed else []
    compiler = re.search(r'^ "?(/[^"\n]*?(?:/cc1plus|/clang[^/" ]*))"? ', output, re.MULTILINE)
    folders = [plain_path(os.path.abspath(folder)) for folder in [*missing, *found]]
    driver = re.search(r"^COLLECT_GCC=(.*)$", output, re.MULTILINE)
    tools = [toolchain.find_program(driver[1])] if driver else []
    tools += [plain_path(compiler[1])] if compiler else []
    return folders, [tool for tool in tools if tool]


def assembly(command, source):
    """What the compiler makes of a source before it is assembled."""
    return _run([*_without_inputs_and_outputs(command), "-S", source, "-o", "-"])


def linker(command):
    """[path] of the linker that a flag of the link names, such as -fuse-ld=gold; [] without."""
    flags = [word for word in command if word.startswith("-fuse-ld=")]
    path = _program(toolchain.cxx_command(), "ld", flags) if flags else None
    return [path] if path else []


def _program(command, name, flags=()):
    path = _run([*_programs(command), *flags, f"-print-prog-name={name}"]).strip()
    return toolchain.find_program(path)


def _programs(command):
    """["ccache", "g++"] of "ccache g++ -O3 ..."."""
    return list(itertools.takewhile(lambda word: not word.startswith("-"), command))


def _run(command):
    """What the command prints, both streams; '' where it cannot be run."""
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        result = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, env=environment, check=False
        )
    except OSError:
        return ""
    return (result.stdout + result.stderr).decode(errors="replace")


def _without_inputs_and_outputs(command):
    words, skip = [], False
    for word in command:
        if skip:
            skip = False
        elif word in ("-o", "-c", "-MF", "-MT", "-MQ"):
            skip = True
        elif word not in ("-MD", "-MMD", "-MP"):
            words.append(word)
    return words
