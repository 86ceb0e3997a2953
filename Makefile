# NVMe over RDMA, anywhere. `make demo` shows it, `make test` checks it, `make help` says more.

GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS  = -s -w -X github.com/nvme-anywhere/nvmeof/internal/version.Version=$(VERSION)

# There is no C code here: only the race detector needs cgo (tests/run.sh).
export CGO_ENABLED = 0

# How long `make verify`, `make soak`, `make simulate`, `make campaign` and each part of `make fuzz` run.
TIME     ?= 60s
FUZZTIME ?= 5s

# Points at which `make crash` lets the power fail, for each kind of volume.
POINTS   ?= 10000

# How many changes `make churn` makes.
CHANGES  ?= 360

# How often `make kill` kills.
KILLS    ?= 200

# The kernels of `make test-linux`, "7.3 6.12" say, if not Debian 12's two. The sources in /etc/apt must have them.
KERNELS  ?=

# How often `make power-cuts` and `make database-cuts` cut the power.
CUTS     ?= 50

.PHONY: attack bench bench-target bench-volumes build campaign check churn clean costs crash database-cuts demo dist fuzz help interop kill lint linux-shell lossy pgo plots power-cuts setup simulate soak speed speed-pmem test test-arm test-linux verify
.DEFAULT_GOAL := build

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' Makefile

build: ## build bin/nvmetgt and bin/nvmeinit, static
	$(GO) build -pgo=packaging/io.pgo -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/nvmetgt ./cmd/nvmeinit

demo: build ## export volumes over RDMA and NVMe/TCP on loopback, use them, compare (a minute)
	$(GO) run ./tests/demo -bin bin

test: build setup ## everything that is tested here: unit, race detector, whole programs
	tests/run.sh

test-linux: SHORT = -short
test-linux: ## both programs against Debian's kernels 6.1 and 6.12 under QEMU (root; a quarter of an hour)
	NVMEOF_LINUX=1 NVMEOF_KERNELS='$(KERNELS)' $(GO) run ./tests/linux/interop $(PAGE) $(GO) test $(SHORT) -json ./tests/linux -count=1 -timeout 90m

interop: ## the same and all that it leaves out, with figures of lossy networks and of speed (55 minutes), into docs/interop.md
	NVMEOF_LINUX_FIGURES=1 $(MAKE) test-linux SHORT= PAGE='-page docs/interop.md'

power-cuts: ## cut the power of a machine with nvmetgt CUTS times under a host that writes, and a database (root; 25 minutes)
	NVMEOF_LINUX=1 NVMEOF_POWER_CUTS=$(CUTS) $(GO) test ./tests/linux -run TestStore -count=1 -timeout 0 -v

database-cuts: ## cut it CUTS times under a database alone, SQLite with both its journals by turns (root; CUTS=12: 7 minutes)
	NVMEOF_LINUX=1 NVMEOF_DATABASE_CUTS=$(CUTS) $(GO) test ./tests/linux -run 'TestStore/.*/.*/database' -count=1 -timeout 0 -v

test-arm: ## tests of the build for arm64, and its programs beside those of this machine, emulated (apt install qemu-user-static)
	tests/arm.sh

linux-shell: build ## a shell in a machine with Linux 6.12, nvmetgt at 198.18.0.1 beside it (root)
	$(GO) run ./tests/linux/shell -- bin/nvmetgt serve --volume mem:256MiB --listen rdma://198.18.0.1:4420 --listen tcp://198.18.0.1:4420

setup: ## install what the tests use beyond Go, where that is possible
	@tests/setup.sh

check: ## the fast part of the tests: vet and unit tests without the race detector
	$(GO) vet ./...
	$(GO) test ./...

lint: ## static analysis
	$(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0 run ./...

fuzz: ## run every fuzz target for FUZZTIME, as 10m, or 10000000x for as many executions
	tests/fuzz.sh $(FUZZTIME)

campaign: ## take every fuzz target on towards 10,000,000 executions for TIME (0: until done); the table into docs/fuzzing.md
	$(GO) run ./tests/campaign -time $(TIME) $(CAMPAIGNFLAGS)

verify: build ## random operations against a model for TIME on every volume and transport
	NVMEOF_VERIFY_TIME=$(TIME) $(GO) test ./tests -run TestModel -count=1 -timeout 0 -v

bench-volumes: ## the file volume beside fio on the same file, turn by turn (apt install fio)
	$(GO) run ./tests/volumes $(BENCHFLAGS)

bench-target: build ## the file volume behind nvmetgt beside the same locally and the network alone (5 minutes)
	$(GO) run ./tests/volumes -through rdma,tcp -depths 1,32 $(BENCHFLAGS)

kill: ## kill -9 nvmetgt KILLS times under a host that writes; nothing acknowledged may be lost
	NVMEOF_KILLS=$(KILLS) $(GO) test ./tests -run TestKillData -count=1 -timeout 0 -v

soak: ## random work over random faults against a model, for TIME (1h, or 10000x for as many seeds)
	NVMEOF_SOAK=$(TIME) $(GO) test ./fabric/rdma/roce -run TestHistories -count=1 -timeout 0 -v

simulate: ## simulated worlds of hosts and targets with random faults, for TIME (1h, or 1000x for as many)
	NVMEOF_SIMULATION=$(TIME) $(GO) test ./tests/simulation -count=1 -timeout 0 -v

churn: ## 100 hosts through CHANGES random live changes, path losses and restarts (360 is an hour with one every 10 s)
	NVMEOF_CHURN=$(CHANGES) $(GO) test ./tests -run 'TestChurn$$' -count=1 -timeout 0 -v

lossy: build ## RDMA beside the kernel's TCP on a lossy link, in one run; the table into docs/recovery.md (root)
	NVMEOF_LOSSY=4s NVMEOF_LOSSY_PAGE=$(CURDIR)/docs/recovery.md $(GO) test ./tests -run TestLossBesideTCP -count=1 -v -timeout 60m

plots: ## draw the plots of docs/congestion.md anew, from the simulated network
	NVMEOF_PLOTS=$(CURDIR)/docs $(GO) test ./fabric/rdma/roce -run 'TestCongestion$$' -count=1

crash: ## power failures, simulated, at POINTS points of random histories for each kind of volume
	NVMEOF_CRASH_POINTS=$(POINTS) $(GO) test ./blockdev ./persist -run Crash -count=1 -timeout 0 -v

attack: ## attackers against a target with honest hosts, who must keep 80% of their throughput
	NVMEOF_ATTACK=1 $(GO) test ./tests -run 'TestAttack|TestSprayedKeys' -count=1 -v

speed: build ## RDMA against bare sockets and NVMe/TCP with 4 KiB and 128 KiB at depth 32, in one run (behind TCP on loopback: BENCHMARKS.md)
	NVMEOF_SPEED=1 $(GO) test ./tests -run TestRDMABesideSockets -count=1 -v

costs: build ## speed beside NVMe/TCP and bare sockets, and over a link, what an I/O costs, growth, idle connections, scrapes (PARTS="io idle")
	$(GO) run ./tests/costs -bin bin $(PARTS)

speed-pmem: build ## persistent memory against a memory volume over RDMA, in one run (files in NVMEOF_PMEM_DIR)
	NVMEOF_SPEED_PMEM=1 $(GO) test ./tests -run TestPmemSpeed -count=1 -v -timeout 20m

bench: ## the benchmarks, in the form that benchstat reads
	$(GO) test -run '^$$' -bench . -benchmem -count 6 ./...

pgo: ## profile I/O anew for the compiler, which makes faster programs of it (packaging/io.pgo; a minute)
	$(GO) test ./tests -run '^$$' -bench '^Benchmark(IO|ReadAt)$$' -benchtime 2s -cpuprofile packaging/io.pgo -o bin/io.test

dist: ## in dist/: static programs for amd64 and arm64, with manual pages, completions and Debian packages
	GO='$(GO)' packaging/dist.sh dist '$(VERSION)' '$(LDFLAGS)'

clean: ## remove what was built
	rm -rf bin dist volumes-bench.img
