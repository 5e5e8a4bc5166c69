# Two commands for a stranger, each doing its whole set-up: `make demo` and `make test`.
PRESET ?= release
BUILD = build/$(PRESET)

.PHONY: all setup configure build tests test test-long test-gpu sanitize sanitize-quick asan tsan sanitize-gpu fuzz tidy demo format \
        check clean
all: build

setup:
	@scripts/setup.sh

configure: setup
	@test -f $(BUILD)/build.ninja || cmake --preset $(PRESET)

# The binary alone; `tests` builds it and all test programs.
build: configure
	@cmake --build $(BUILD) --target adjoint
tests: configure
	@cmake --build $(BUILD)

# Fast tests; the long ones carry a label of their own and run with `make test-long`.
test: check tests
	ctest --test-dir $(BUILD) --output-on-failure --label-exclude long --parallel $$(nproc)

test-long: tests
	ctest --test-dir $(BUILD) --output-on-failure --label-regex long

# Where there is a GPU: every op's contract, steps and laws there; and memory and races in its kernels.
test-gpu: tests
	ctest --test-dir $(BUILD) --output-on-failure --label-regex gpu
sanitize-gpu: tests
	compute-sanitizer --tool memcheck --error-exitcode 1 $(BUILD)/bin/gpu_test --gtest_filter=-*GpuLaws*
	compute-sanitizer --tool racecheck --error-exitcode 1 $(BUILD)/bin/gpu_test --gtest_filter=-*GpuLaws*

# Memory and undefined behaviour on the fast tests; races on the kernels, the loader, the saver and the fit.
sanitize: asan tsan
asan tsan: setup
	@test -f build/$@/build.ninja || cmake --preset $@
	@cmake --build --preset $@
	ctest --preset $@ --parallel $$(nproc)

# The rooms where pointers are: part of CI, while all of asan and tsan take an hour of two cores.
sanitize-quick: setup
	@test -f build/asan/build.ninja || cmake --preset asan
	@cmake --build --preset asan-quick
	ctest --preset asan-quick --parallel $$(nproc)

# Parsers of files from elsewhere under libFuzzer and the sanitizers, FUZZ_SECONDS each.
fuzz:
	@scripts/setup.sh clang
	@test -f build/fuzz/build.ninja || cmake -S tests/fuzz -B build/fuzz -G Ninja -DCMAKE_CXX_COMPILER=clang++ >/dev/null
	@cmake --build build/fuzz
	@tests/fuzz/fuzz.sh

tidy:
	@scripts/setup.sh clang-tidy
	@scripts/tidy.sh

demo: build
	@scripts/demo.sh $(BUILD)/adjoint

# What takes a second to find wrong is looked at before what takes minutes.
check: setup
	@scripts/check_includes.py
	@scripts/check_names.py
	@scripts/check_format.sh

format:
	@scripts/check_format.sh --repair

clean:
	rm -rf build
