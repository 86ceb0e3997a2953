package linux

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/nvme-anywhere/nvmeof/tests/linux/lab"
)

// enabledEnv set to 1 says that the tests may install packages and boot machines.
const enabledEnv = "NVMEOF_LINUX"

// kernels are the versions that the tests run against.
var kernels = []string{"6.12", "6.1"}

var (
	images map[string]*lab.Image
	binDir string // holds both programs
)

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

// run runs twice: first with the host's network, to download and build; then, in a namespace
// of its own, with the tests.
func run(m *testing.M) (code int, err error) {
	if images, err = lab.Prepare(context.Background(), kernels...); err != nil {
		return 1, err
	}
	if binDir, err = os.MkdirTemp("", "nvmeof-linux-"); err != nil {
		return 1, err
	}
	defer os.RemoveAll(binDir)
	const module = "github.com/nvme-anywhere/nvmeof"
	build := exec.Command("go", "build", "-o", binDir+"/", module+"/cmd/nvmetgt", module+"/cmd/nvmeinit")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("go build: %w\n%s", err, out)
	}
	if !lab.Isolated() {
		return lab.Isolate(), nil
	}
	return m.Run(), nil
}
