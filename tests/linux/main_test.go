package linux

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/nvme-anywhere/nvmeof/tests/linux/lab"
)

// enabledEnv set to 1 says that the tests may install packages and boot machines.
const enabledEnv = "NVMEOF_LINUX"

var (
	images map[string]*lab.Image
	binDir string // holds both programs, and the examples
)

// kernels are the kernels to run with; a test takes one of them in a short run.
func kernels() []string {
	if testing.Short() {
		return lab.Kernels[:1]
	}
	return lab.Kernels
}

func TestMain(m *testing.M) {
	if os.Getenv(enabledEnv) != "1" {
		fmt.Println("skipped: these tests boot Linux kernels; `make test-linux` runs them")
		return
	}
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// run runs twice: first with the host's network, to download and build; then, in a network namespace of its own, with
// the tests.
func run(m *testing.M) (code int, err error) {
	dir, remove, err := lab.WorkDir()
	if err != nil {
		return 1, err
	}
	defer remove()
	if images, err = lab.Prepare(context.Background(), lab.Kernels...); err != nil {
		return 1, err
	}
	binDir = filepath.Join(dir, "bin")
	if lab.Isolated() {
		return m.Run(), nil
	}
	const module = "github.com/nvme-anywhere/nvmeof"
	build := exec.Command("go", "build", "-o", binDir+"/", module+"/cmd/nvmetgt", module+"/cmd/nvmeinit",
		module+"/examples/rcpingpong", module+"/examples/rping", module+"/examples/perftest")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("go build: %w\n%s", err, out)
	}
	return lab.Isolate(), nil
}
