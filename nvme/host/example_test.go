package host

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// A program uses fabric/tcp.NewTransport or fabric/rdma.NewTransport here; this one connects
// to a controller in its own memory.
func ExampleConnect() {
	ctx := context.Background()
	transport := newFakeTarget()
	c, err := Connect(ctx, Config{
		Transport: transport,
		Remote:    testRemote,
		SubNQN:    testNQN,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	n, err := c.Namespace(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := n.WriteAt(ctx, make([]byte, 4096), 0); err != nil {
		log.Fatal(err)
	}
	if err := n.Flush(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(c.Identify().ModelNumber(), n.Size())
	// Output: fake 2097152
}

// disk is a namespace for packages that know nothing of contexts: an io.ReaderAt and io.WriterAt. Config.IOTimeout still
// bounds its commands.
type disk struct{ ns *Namespace }

func (d disk) ReadAt(p []byte, off int64) (int, error) {
	return d.ns.ReadAt(context.Background(), p, off)
}

func (d disk) WriteAt(p []byte, off int64) (int, error) {
	return d.ns.WriteAt(context.Background(), p, off)
}

// A Namespace reads and writes whole blocks. A buffer that consists of blocks serves readers of anything smaller.
func ExampleNamespace() {
	ctx := context.Background()
	c, err := Connect(ctx, Config{Transport: newFakeTarget(), Remote: testRemote, SubNQN: testNQN})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	ns, err := c.Namespace(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}
	block := make([]byte, ns.BlockSize())
	copy(block, "the first line\n")
	if _, err := (disk{ns}).WriteAt(block, 0); err != nil {
		log.Fatal(err)
	}
	if err := ns.Flush(ctx); err != nil { // not durable before
		log.Fatal(err)
	}
	r := bufio.NewReaderSize(io.NewSectionReader(disk{ns}, 0, ns.Size()), 16*ns.BlockSize())
	line, err := r.ReadString('\n')
	fmt.Printf("%q %v\n", line, err)
	_, err = disk{ns}.ReadAt(block[:14], 0)
	fmt.Println(errors.Is(err, ErrRange), err)
	// Output:
	// "the first line\n" <nil>
	// true nvme: namespace 1: bad range: offset 0 and length 14 must be multiples of the block size, 512
}

// The asynchronous path: Done runs in the transport's context and submits the next command,
// so that the queue stays full without a goroutine per command.
func ExampleQueue_Submit() {
	ctx := context.Background()
	c, err := Connect(ctx, Config{Transport: newFakeTarget(), Remote: testRemote, SubNQN: testNQN, Queues: 1})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	q := c.Queues()[0]

	const depth, total = 4, 100
	finished := make(chan struct{})
	issued, ended := depth, 0
	var batch []*Request
	for range depth {
		r := &Request{Data: make([]byte, 512)}
		r.Cmd.SetIO(nvme.OpRead, 1, 0, 1, 0)
		r.Done = func(r *Request) {
			if err := r.Check(); err != nil {
				log.Print(err)
			}
			if ended++; ended == total {
				close(finished)
			}
			if issued < total && r.Err == nil {
				issued++
				r.Cmd.SetIO(nvme.OpRead, 1, uint64(issued), 1, 0)
				q.SubmitOne(r)
			}
		}
		batch = append(batch, r)
	}
	q.Submit(batch)
	<-finished
	fmt.Println(ended, "reads")
	// Output: 100 reads
}
