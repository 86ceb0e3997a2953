// Command demo shows the whole system on one machine: nvmetgt exports a file and a persistent
// memory volume over RDMA and TCP, nvmeinit finds them, copies a real file there and back,
// and measures. It exits non-zero if anything was wrong.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/nvme-anywhere/nvmeof/blockdev"
)

const volumeSize = 256 << 20

func main() {
	bin := flag.String("bin", "bin", "directory of nvmetgt and nvmeinit")
	runtime := flag.Duration("runtime", time.Second, "how long each measurement takes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *bin, *runtime); err != nil {
		fmt.Fprintf(os.Stderr, "demo: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, bin string, runtime time.Duration) (err error) {
	dir, err := os.MkdirTemp("", "nvmeof-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	began := time.Now()

	archive := filepath.Join(dir, "go-source.tar")
	size, sum, err := makeArchive(archive)
	if err != nil {
		return fmt.Errorf("make the file to copy: %w", err)
	}
	step("A file to copy: the Go toolchain's source, %s, SHA-256 %.16s…", blockdev.FormatSize(size), sum)

	t, err := startTarget(bin, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.Stop()) }()
	d := &demo{bin: bin, dir: dir, target: t, archive: archive, size: size, sum: sum, runtime: runtime}
	for _, transport := range transports {
		if err := d.use(ctx, transport); err != nil {
			return fmt.Errorf("%s: %w", transport, err)
		}
	}
	if err := d.measureAll(ctx); err != nil {
		return err
	}
	d.table(os.Stdout)
	step("Everything worked, in %.0f seconds.", time.Since(began).Seconds())
	fmt.Print(next)
	return nil
}

// next says what to try after the demo.
const next = `
What to try next, in two shells:
  bin/nvmetgt serve --volume disk.img --size 1GiB
  bin/nvmeinit discover -t rdma -a 127.0.0.1
  bin/nvmeinit bench -t rdma -a 127.0.0.1 --rw randread --bs 4k --iodepth 32 --runtime 10s
  bin/nvmeinit bench --help
`

// step prints what is being done.
func step(format string, a ...any) { fmt.Printf("\n== "+format+"\n", a...) }
