package nvme_test

import (
	"errors"
	"fmt"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

func ExampleCommand_SetIO() {
	var c nvme.Command
	c.SetIO(nvme.OpRead, 1, 2048, 8, 0)
	fmt.Println(c.Name(1), c.NSID(), c.SLBA(), c.Blocks())
	// Output: Read 1 2048 8
}

func ExampleCompletion_ErrFor() {
	var c nvme.Command
	c.SetIO(nvme.OpWrite, 1, 1<<40, 8, 0)
	var q nvme.Completion
	q.SetStatus(nvme.StatusLBAOutOfRange | nvme.StatusDNR)
	err := q.ErrFor(&c, 1)
	fmt.Println(err)
	fmt.Println(errors.Is(err, nvme.StatusLBAOutOfRange))
	// Output:
	// nvme: Write on namespace 1, blocks 1099511627776 to 1099511627783: LBA out of range (do not retry); the range ends beyond the namespace
	// true
}

func ExampleCheckNQN() {
	fmt.Println(nvme.CheckNQN("nqn.2024-01.com.example:disk1"))
	fmt.Println(nvme.CheckNQN("iqn.2024-01.com.example:disk1"))
	// Output:
	// <nil>
	// "iqn.2024-01.com.example:disk1" is not an NVMe Qualified Name: it must begin with "nqn."; an example is nqn.2024-01.com.example:disk1
}

func ExampleIdentifyController() {
	var p nvme.IdentifyController
	nvme.PutPadded(p.MN[:], "nvmetgt")
	p.MDTS = 8
	page := p.AppendTo(nil)

	var q nvme.IdentifyController
	if err := q.Parse(page); err != nil {
		fmt.Println(err)
	}
	fmt.Println(len(page), q.ModelNumber(), q.MaxTransfer())
	// Output: 4096 nvmetgt 1048576
}
