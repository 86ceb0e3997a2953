package softrnic

import (
	"golang.org/x/net/bpf"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/cm"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
)

// Where a packet has its destination QPN, behind a reserved byte, and the packet of a MAD its payload (IBTA 9.2,
// 9.3.3).
const (
	qpnAt = 4
	madAt = 12 + 8 // behind BTH and DETH
)

// Numbers of queue pairs and communication IDs have room for the same indices.
var _ [roce.MaxEngines]struct{} = [cm.MaxEngines]struct{}{}

// steering returns the program that says which of several RNICs at an address a packet is for, by its index: the one
// that has the queue pair, or the connection that a MAD is about.
func steering(rnics int) []bpf.Instruction {
	index := bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: MaxEngines - 1}
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: qpnAt, Size: 4},
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: uint32(wire.MaxQPN)},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(wire.QP1), SkipTrue: 3},
		bpf.ALUOpConstant{Op: bpf.ALUOpShiftRight, Val: roce.EngineShift},
		index,
		bpf.RetA{},
		// a MAD
		bpf.LoadAbsolute{Off: madAt + cm.SteerAttribute, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: cm.SteerREQ, SkipTrue: 4},
		bpf.LoadAbsolute{Off: madAt + cm.SteerReceiver, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 2},
		index,
		bpf.RetA{},
		// one that names no connection of ours
		bpf.LoadAbsolute{Off: madAt + cm.SteerSender, Size: 4},
		bpf.TAX{},
		bpf.ALUOpConstant{Op: bpf.ALUOpShiftRight, Val: cm.SteerShift},
		bpf.ALUOpX{Op: bpf.ALUOpXor},
		index,
		bpf.ALUOpConstant{Op: bpf.ALUOpMod, Val: uint32(rnics)},
		bpf.RetA{},
	}
}

// steer is steering for the program itself, where the kernel has given packets to the wrong RNIC.
func steer(rnics int) (func(packet []byte) int, error) {
	vm, err := bpf.NewVM(steering(rnics))
	if err != nil {
		return nil, err
	}
	return func(packet []byte) int {
		index, err := vm.Run(packet)
		if err != nil {
			return 0
		}
		return index
	}, nil
}
