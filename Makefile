# Two commands for a stranger, each doing its whole set-up: `make demo` and `make test`. `make help` prints the sentences
# that stand behind ## here.
PRESET ?= release
BUILD = build/$(PRESET)
PREFIX ?= /usr/local
DESTDIR ?=

.PHONY: all help setup configure build page studio tests test test-long test-gpu sanitize sanitize-quick asan tsan sanitize-gpu fuzz tidy tidy-recent demo \
        format check clean install uninstall deb
.NOTPARALLEL:  # the builds below use every core by themselves
all: build

help: ## Lists these targets.
	@sed -nE 's/^([a-z][a-z -]*):[^#]*## (.*)/\1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 16

setup: ## Installs what the build, the tests and the demo need, from the distribution's packages.
	@scripts/setup.sh

configure: setup
	@test -f $(BUILD)/build.ninja || cmake --preset $(PRESET)

build: configure ## Builds the binary, build/release/adjoint, with its manual pages; what `make` does.
	@cmake --build $(BUILD) --target adjoint adjoint_manual
tests: configure ## Builds the binary and all test programs.
	@cmake --build $(BUILD)
# CMake embeds the page that it finds, so the page comes first.
page: setup
	@scripts/build_page.sh || { [ $$? = 77 ] && echo "warning: the studio has no page, so it is not tested in a browser"; }
studio: ## Builds the binary with the studio's page in it; this needs Node 18 and npm, and gets them.
	@scripts/build_page.sh
	@$(MAKE) --no-print-directory build

# Fast tests; the long ones carry a label of their own and run with `make test-long`.
# The studio's page is tested in the distribution's browser.
test: check page tests ## Checks and builds everything, and runs the fast tests.
	@scripts/setup.sh chromium || echo "warning: there is no package chromium, so the studio is not tested in a browser"
	ctest --test-dir $(BUILD) --output-on-failure --label-exclude long --parallel $$(nproc) || \
	  { echo "once more what failed, by itself, so that it stands last:"; ctest --test-dir $(BUILD) --output-on-failure --rerun-failed; exit 1; }

test-long: tests ## Runs the tests that take minutes.
	ctest --test-dir $(BUILD) --output-on-failure --label-regex long

# Where there is a GPU: every op's contract, steps and laws there; and memory and races in its kernels.
test-gpu: tests ## Runs the tests that want a GPU.
	ctest --test-dir $(BUILD) --output-on-failure --label-regex gpu
sanitize-gpu: tests ## Looks for wrong memory accesses and races in the kernels of a GPU.
	compute-sanitizer --tool memcheck --error-exitcode 1 $(BUILD)/bin/gpu_test --gtest_filter=-*GpuLaws*
	compute-sanitizer --tool racecheck --error-exitcode 1 $(BUILD)/bin/gpu_test --gtest_filter=-*GpuLaws*

# Memory and undefined behaviour on the fast tests; races on the kernels, the loader, the saver and the fit.
sanitize: asan tsan ## Runs the fast tests under AddressSanitizer and UBSan, and some under ThreadSanitizer.
asan tsan: setup ## Runs one half of that.
	@test -f build/$@/build.ninja || cmake --preset $@
	@cmake --build --preset $@
	ctest --preset $@ --parallel $$(nproc)

# The rooms where pointers are: part of CI, while all of asan and tsan take an hour of two cores.
sanitize-quick: setup ## Runs the tests of the first rooms under AddressSanitizer and UBSan.
	@test -f build/asan/build.ninja || cmake --preset asan
	@cmake --build --preset asan-quick
	ctest --preset asan-quick --parallel $$(nproc)

# Parsers of files from elsewhere under libFuzzer and the sanitizers, FUZZ_SECONDS each.
fuzz: ## Fuzzes the parsers of files from elsewhere, FUZZ_SECONDS each.
	@scripts/setup.sh clang
	@test -f build/fuzz/build.ninja || cmake -S tests/fuzz -B build/fuzz -G Ninja -DCMAKE_CXX_COMPILER=clang++ >/dev/null
	@cmake --build build/fuzz
	@tests/fuzz/fuzz.sh

tidy: ## Runs clang-tidy's chosen checks over src.
	@scripts/setup.sh clang-tidy
	@scripts/tidy.sh
tidy-recent: ## Runs them over what the last day's commits changed, as CI does.
	@scripts/setup.sh clang-tidy
	@scripts/tidy.sh --recent

demo: build ## Trains a small model on a public-domain text for a minute, and samples from it.
	@scripts/demo.sh $(BUILD)/adjoint

install: build ## Installs the program, manual pages, completions and libadjoint under PREFIX (/usr/local), within DESTDIR.
	@scripts/install.sh $(BUILD) "$(PREFIX)" "$(DESTDIR)"
uninstall: ## Removes what `make install` with the same PREFIX and DESTDIR put there.
	@scripts/uninstall.sh "$(PREFIX)" "$(DESTDIR)"

deb: studio ## Makes Debian packages: adjoint (with the studio), adjoint-openmpi and libadjoint-dev, in build/release/packages.
	@scripts/setup.sh dpkg-dev file
	@rm -f $(BUILD)/packages/*.deb
	@cd $(BUILD) && cpack
	@ls $(BUILD)/packages/*.deb

# What takes a second to find wrong is looked at before what takes minutes.
check: setup ## Checks include directions, names of ops and classes, and formatting.
	@scripts/check_includes.py
	@scripts/check_names.py
	@scripts/check_classes.py
	@scripts/write_mistakes.py --check
	@scripts/check_format.sh

format: ## Formats the sources.
	@scripts/check_format.sh --repair

clean: ## Removes all builds, and the studio's page.
	rm -rf build studio/dist
