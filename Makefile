# The front door. `make demo` and `make test` work on a fresh Debian 12 or 13: they install what is missing. Whoever says
# `make` or `make install` says `make deps` first, so that nothing is installed unasked. The trainer
# needs oneDNN 2.4 or later, 2.x or 3.x; where there is none, CMAKE_FLAGS=-DTHINWIRE_TRAINER=OFF leaves the library.
BUILD ?= build
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
# A test waits half of its time: for processes that start, files that are synced, ranks that were killed.
TEST_JOBS ?= $(shell expr 2 '*' $(JOBS))
CMAKE_FLAGS ?=
FUZZ_SECONDS ?= 60

.PHONY: all help deps deps-test deps-dev configure build program demo test test-all test-python torch2 test-torch2 test-slurm bench install wheel deb asan tsan fuzz configure-asan build-asan build-fuzzers build-tsan mutations lint format check-format reference clean

all: build

help:
	@echo "make demo      install what is missing, build, train on real images: dense against compressed"
	@echo "make test      install what is missing, build, run the tests but for the longest, in some seven minutes; in"
	@echo "               $(BUILD), ctest -L fast runs those that are done in seconds, -LE mpi those that need no mpirun,"
	@echo "               -L cli those of the program"
	@echo "make test-all  the same with every test, but for parts of longer ones"
	@echo "make test-python  install Debian's PyTorch, too, and run the tests of the Python package"
	@echo "make test-torch2  run them with a PyTorch 2 and the frameworks of the recipes, which pip fetches"
	@echo "make test-slurm   as root: run the examples for Slurm under a Slurm of one node, whose packages apt installs first"
	@echo "make deps      install what building, running and testing need, with apt"
	@echo "make           build $(BUILD)/thinwire and $(BUILD)/libthinwire.so"
	@echo "make bench     figures beside their limits, measured in one run"
	@echo "make install   to PREFIX=$(PREFIX), below DESTDIR if that is set"
	@echo "make wheel     the Python package as a wheel for other machines and as a source distribution, in dist"
	@echo "make deb       Debian packages for machines like this one, without a compiler, in dist"
	@echo "make asan, tsan, fuzz, mutations, lint, format   for developers"

# What building, running and testing need; tools/install-packages asks apt only for what is not there.
deps:
	@tools/install-packages build-essential cmake ninja-build pkg-config python3 \
		libdnnl-dev libopenmpi-dev openmpi-bin libsodium-dev libcurl4-openssl-dev libcjson-dev libyaml-dev zlib1g-dev libcmocka-dev \
		libsndfile1-dev libsamplerate0-dev libkissfft-dev libjpeg-dev libpng-dev libsentencepiece-dev \
		dataset-fashion-mnist gnuplot-nox

# What the tests of other processors (tests/processors) and of the interface need besides; where it is missing they are
# skipped. On ARM there is no x86 to emulate: the programs are built for ARM.
OTHER_PROCESSORS = valgrind qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross
ifneq ($(shell uname -m),x86_64)
OTHER_PROCESSORS = valgrind
endif
deps-test: deps
	@tools/install-packages $(OTHER_PROCESSORS) || echo "going on without them: the tests of other processors are skipped"
	@tools/install-packages file || echo "going on without it: the Debian packages are not tried"
	@tools/install-packages abigail-tools || echo "going on without it: the interface is not compared with releases"
	@tools/install-packages nftables || echo "going on without it: no router translates addresses in a test"

deps-dev: deps-test
	@tools/install-packages clang libclang-rt-dev clang-format clang-tidy cppcheck shellcheck llvm
	@tools/install-packages lld || echo "going on without it: programs with sanitizers are linked more slowly"

configure:
	@tools/configure $(BUILD) $(CMAKE_FLAGS) || { echo "make deps installs what is missing" >&2; exit 1; }

build: configure
	@cmake --build $(BUILD) -j $(JOBS)

# The program alone: neither tests nor examples.
program: configure
	@cmake --build $(BUILD) -j $(JOBS) --target thinwire_program

demo: deps
	@$(MAKE) --no-print-directory program
	@$(BUILD)/thinwire demo

# Those labelled slow or extra are left to test-all (tests/CMakeLists.txt).
test: deps-test
	@$(MAKE) --no-print-directory build
	@tools/run-tests $(BUILD) $(TEST_JOBS)

test-all: deps-test
	@$(MAKE) --no-print-directory build
	@tools/run-tests $(BUILD) $(TEST_JOBS) all

# The Python package with Debian's PyTorch, which is large: make test leaves out what needs it where it is not there.
test-python: build
	@tools/install-packages python3-torch python3-venv mypy
	@cd $(BUILD) && ctest --output-on-failure -j $(TEST_JOBS) -R '^python_'

# The same with a PyTorch of the registry and the frameworks of the recipes, in a virtual environment in $(BUILD), which is
# large, and kept. TORCH2 is what pip is to install.
TORCH2 ?= torch==2.13.0 lightning==2.6.6 accelerate==1.15.0 transformers==5.23.0 peft==0.21.2
TORCH2_TESTS ?= ^python_
torch2:
	@tools/install-packages python3-venv mypy
	@[ -x $(BUILD)/torch2/bin/python ] || python3 -m venv $(BUILD)/torch2
	@$(BUILD)/torch2/bin/pip install --quiet --disable-pip-version-check $(TORCH2)

test-torch2: build torch2
	@cmake -DTHINWIRE_PYTHON=$(abspath $(BUILD))/torch2/bin/python $(BUILD) >/dev/null
	@cd $(BUILD) && ctest --output-on-failure -j $(TEST_JOBS) -R '$(TORCH2_TESTS)'; code=$$?; cmake -UTHINWIRE_PYTHON . >/dev/null; exit $$code

# The page's examples for Slurm. Its packages are no part of make test, because they bring services, which Debian starts.
test-slurm: build
	@tools/install-packages slurm-wlm munge openmpi-bin
	@tests/slurm.py $(BUILD)/thinwire || [ $$? = 77 ]

bench: build
	@bench/codec.sh $(BUILD)/thinwire
	@bench/train.py $(BUILD)/thinwire

# The public headers as pages of HTML, in $(BUILD)/reference/html.
reference:
	@tools/install-packages doxygen
	@mkdir -p $(BUILD)/reference
	@(cat Doxyfile && echo OUTPUT_DIRECTORY=$(BUILD)/reference) | doxygen -

# For a machine without a compiler, of the same release of Debian or Ubuntu as this one.
deb: deps
	@tools/install-packages dpkg-dev file
	@tools/configure $(BUILD)/deb -DCMAKE_INSTALL_PREFIX=/usr -DTHINWIRE_TESTS=OFF $(CMAKE_FLAGS)
	@cmake --build $(BUILD)/deb -j $(JOBS)
	@rm -rf $(BUILD)/deb/packages
	@cd $(BUILD)/deb && cpack > cpack.log || { cat cpack.log >&2; exit 1; }
	@mkdir -p dist && cp $(BUILD)/deb/packages/*.deb dist && ls dist/*.deb

install: configure
	@cmake --build $(BUILD) -j $(JOBS) --target shipped
	@cmake --install $(BUILD) --prefix $(PREFIX)

wheel: deps
	@tools/install-packages python3-venv
	@tools/wheel dist

# The tests under sanitizers, with clang. Those labelled slow are left out: they take minutes as they are.
LEFT_OUT ?= slow
SANITIZE = -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ -DTHINWIRE_SANITIZE

# Libraries without frame pointers need the slow unwinder, or lsan.supp does not see who allocated.
asan: export LSAN_OPTIONS = suppressions=$(CURDIR)/tests/lsan.supp:print_suppressions=0
asan: export UBSAN_OPTIONS = print_stacktrace=1
asan: build-asan
	@cd $(BUILD)-asan && ctest -LE '$(LEFT_OUT)' --output-on-failure -j $(TEST_JOBS)

# The library's threads. The trainer's other threads are OpenMP's, which is not instrumented: it looks racy and is not.
tsan: export TSAN_OPTIONS = ignore_noninstrumented_modules=1
tsan: build-tsan
	@cd $(BUILD)-tsan && ctest -LE '$(LEFT_OUT)|one_thread' --output-on-failure -j $(TEST_JOBS)

fuzz: build-fuzzers
	@tools/run-fuzzers $(BUILD)-asan $(FUZZ_SECONDS) $(JOBS)

# The builds alone: CI makes them beside its tests. The fuzzers are in the folder of the tests under asan, and of the same
# objects.
configure-asan: deps-dev
	@tools/configure $(BUILD)-asan $(SANITIZE)=address,undefined -DTHINWIRE_FUZZ=ON

build-asan: configure-asan
	@cmake --build $(BUILD)-asan -j $(JOBS)

build-fuzzers: configure-asan
	@cmake --build $(BUILD)-asan -j $(JOBS) --target fuzzers

build-tsan: deps-dev
	@tools/configure $(BUILD)-tsan $(SANITIZE)=thread -DTHINWIRE_TRAINER=OFF
	@cmake --build $(BUILD)-tsan -j $(JOBS)

# Breaks the code in many ways, in a copy of the tree, and fails if no test notices one of them. Half an hour and more.
# $(BUILD)-mutations/report.md then names the test that noticed each.
mutations: deps
	@tests/mutations/run.py --folder $(BUILD)-mutations --jobs $(JOBS) --report $(BUILD)-mutations/report.md

SOURCES = $(shell git ls-files '*.c' '*.cc' '*.h')
format: deps-dev
	@clang-format -i --style=file $(SOURCES)

check-format: deps-dev
	@clang-format --dry-run --Werror --style=file $(SOURCES)
	@! grep -nE '^.{121,}' $(SOURCES) # of comments, which clang-format leaves as they are

lint: deps-dev check-format
	@$(MAKE) --no-print-directory build
	@tests/layers.py
	@tools/lint $(BUILD) $(JOBS)

clean:
	@rm -rf $(BUILD) $(BUILD)-asan $(BUILD)-tsan $(BUILD)-mutations
