package tests

import (
	"fmt"
	"math"
	"testing"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// queueKind is the queue that a command of the table goes to.
type queueKind int

const (
	adminQueue queueKind = iota
	ioQueue
	discoveryQueue // the admin queue of a discovery controller
)

// wrongField is a command with one wrong field, and what the specification has the controller answer: the status, and
// in the Error Information log the parameter error location and the first block in error.
type wrongField struct {
	name   string
	on     queueKind
	cmd    nvme.Command
	data   int // bytes that the host sends or receives
	status nvme.Status
	at     int // byte of the command; plus 256 times the bit; nowhere for FFFFh
	lba    uint64
}

const nowhere = 0xffff

// bit is the position of a field that begins with bit n of a byte.
func bit(at, n int) int { return at | n<<8 }

// The target of the table: what the rows rely on.
const (
	wrongBlock    = 4096
	wrongBlocks   = 4096 // of namespaces 1 and 2
	wrongReadOnly = 2    // the NSID of a namespace that takes no writes
	wrongTransfer = 1 << 20
)

func make1(set func(*nvme.Command)) (c nvme.Command) {
	set(&c)
	return c
}

// wrongByte is c with one more byte set wrong.
func wrongByte(c nvme.Command, at int, v byte) nvme.Command {
	c[at] = v
	return c
}

func identifyOf(cns nvme.CNS, nsid uint32, csi nvme.CSI) nvme.Command {
	return make1(func(c *nvme.Command) { c.SetIdentify(cns, nsid, 0, csi) })
}

func logOf(p nvme.GetLogPage) nvme.Command {
	return make1(func(c *nvme.Command) { c.SetGetLogPage(p) })
}

func featureOf(f nvme.FID, sel nvme.SEL, nsid, v uint32) nvme.Command {
	return make1(func(c *nvme.Command) { c.SetGetFeatures(f, sel, nsid, v) })
}

func setFeatureOf(f nvme.FID, nsid, v uint32) nvme.Command {
	return make1(func(c *nvme.Command) { c.SetSetFeatures(f, false, nsid, v) })
}

func ioOf(op nvme.Opcode, nsid uint32, slba uint64, blocks uint32) nvme.Command {
	return make1(func(c *nvme.Command) { c.SetIO(op, nsid, slba, blocks, 0) })
}

// wrongFlags are the rows of the flags byte and the opcode, which are the same for all commands. (PSDT is set by the
// host's transports; the engine's own tests get it wrong.)
func wrongFlags() (rows []wrongField) {
	keepAlive := make1(func(c *nvme.Command) { c.SetKeepAlive() })
	flush := make1(func(c *nvme.Command) { c.SetFlush(1) })
	rows = append(rows,
		wrongField{"fused administrative command", adminQueue, wrongByte(keepAlive, 1, 0x41), 0, nvme.StatusInvalidField, 1, 0},
		wrongField{"FUSE 11b", ioQueue, wrongByte(flush, 1, 0x43), 0, nvme.StatusInvalidField, 1, 0},
	)
	for _, op := range []nvme.Opcode{0x01, 0x04, 0x05, 0x1c, 0x7e, 0xc0, 0xff} {
		rows = append(rows, wrongField{fmt.Sprintf("admin opcode %02x", op), adminQueue, wrongByte(keepAlive, 0, byte(op)), 0,
			nvme.StatusInvalidOpcode, 0, 0})
	}
	for _, op := range []nvme.Opcode{0x03, 0x18, 0x7e, 0x80, 0xff} {
		rows = append(rows, wrongField{fmt.Sprintf("I/O opcode %02x", op), ioQueue, wrongByte(flush, 0, byte(op)), 0,
			nvme.StatusInvalidOpcode, 0, 0})
	}
	return rows
}

func wrongFabrics() []wrongField {
	getProperty := func(p nvme.Property) nvme.Command { return make1(func(c *nvme.Command) { c.SetPropertyGet(p) }) }
	setProperty := func(p nvme.Property) nvme.Command { return make1(func(c *nvme.Command) { c.SetPropertySet(p, 0) }) }
	disconnect := make1(func(c *nvme.Command) { c.SetDisconnect() })
	return []wrongField{
		{"Property Get of NSSR", adminQueue, getProperty(nvme.PropNSSR), 0, nvme.StatusInvalidField, 44, 0},
		{"Property Get beyond", adminQueue, getProperty(0x1000), 0, nvme.StatusInvalidField, 44, 0},
		{"Property Get of CAP, 4 bytes", adminQueue, wrongByte(getProperty(nvme.PropCAP), 40, 0), 0, nvme.StatusInvalidField, 40, 0},
		{"Property Get of VS, 8 bytes", adminQueue, wrongByte(getProperty(nvme.PropVS), 40, 1), 0, nvme.StatusInvalidField, 40, 0},
		{"Property Set of CAP", adminQueue, setProperty(nvme.PropCAP), 0, nvme.StatusInvalidField, 44, 0},
		{"Property Set of CSTS", adminQueue, setProperty(nvme.PropCSTS), 0, nvme.StatusInvalidField, 44, 0},
		{"Property Set of CC, 8 bytes", adminQueue, wrongByte(setProperty(nvme.PropCC), 40, 1), 0, nvme.StatusInvalidField, 40, 0},
		{"Property Get on an I/O queue", ioQueue, getProperty(nvme.PropCAP), 0, nvme.StatusInvalidField, 4, 0},
		{"Property Set on an I/O queue", ioQueue, setProperty(nvme.PropCC), 0, nvme.StatusInvalidField, 4, 0},
		{"Fabrics type 42h", adminQueue, wrongByte(disconnect, 4, 0x42), 0, nvme.StatusInvalidField, 4, 0},
		{"Disconnect of the admin queue", adminQueue, disconnect, 0, nvme.StatusInvalidQueueType, 4, 0},
		{"Disconnect, record format 1", ioQueue, wrongByte(disconnect, 40, 1), 0, nvme.StatusConnectFormat, 40, 0},
	}
}

func wrongAuthentication() (rows []wrongField) {
	for name, cmd := range map[string]nvme.Command{
		"Authentication Send":    make1(func(c *nvme.Command) { c.SetAuthSend(72) }),
		"Authentication Receive": make1(func(c *nvme.Command) { c.SetAuthReceive(4096) }),
	} {
		for _, q := range []queueKind{adminQueue, ioQueue} {
			rows = append(rows,
				wrongField{name + ", SPSP0 0", q, wrongByte(cmd, 41, 0), 0, nvme.StatusInvalidField, 41, 0},
				wrongField{name + ", SPSP1 2", q, wrongByte(cmd, 42, 2), 0, nvme.StatusInvalidField, 42, 0},
				wrongField{name + ", SECP 0", q, wrongByte(cmd, 43, 0), 0, nvme.StatusInvalidField, 43, 0},
				wrongField{name + " of nothing", q, wrongByte(wrongByte(cmd, 44, 0), 45, 0), 0, nvme.StatusInvalidField, 44, 0},
				wrongField{name + " of 2 GiB", q, wrongByte(cmd, 47, 0x80), 0, nvme.StatusInvalidField, 44, 0})
		}
	}
	return rows
}

func wrongIdentify() []wrongField {
	const page = nvme.PageSize
	return []wrongField{
		{"Identify, CNS FFh", adminQueue, identifyOf(0xff, 0, 0), page, nvme.StatusInvalidField, 40, 0},
		{"Identify, NVM sets", adminQueue, identifyOf(nvme.CNSNVMSets, 0, 0), page, nvme.StatusInvalidField, 40, 0},
		{"Identify, 512 bytes", adminQueue, identifyOf(nvme.CNSController, 0, 0), 512, nvme.StatusSGLLengthInvalid, 24, 0},
		{"Identify Namespace 0", adminQueue, identifyOf(nvme.CNSNamespace, 0, 0), page, nvme.StatusInvalidNamespace, 4, 0},
		{"Identify Namespace beyond NN", adminQueue, identifyOf(nvme.CNSNamespace, target.MaxNSID+1, 0), page, nvme.StatusInvalidNamespace, 4, 0},
		{"Identify, descriptors of none", adminQueue, identifyOf(nvme.CNSDescriptors, 7, 0), page, nvme.StatusInvalidNamespace, 4, 0},
		{"Identify, active after FFFFFFFEh", adminQueue, identifyOf(nvme.CNSActiveNSIDs, 0xfffffffe, 0), page, nvme.StatusInvalidNamespace, 4, 0},
		{"Identify, independent of 0", adminQueue, identifyOf(nvme.CNSIndependentNamespace, 0, 0), page, nvme.StatusInvalidNamespace, 4, 0},
		{"Identify, allocated after FFFFFFFEh", adminQueue, identifyOf(nvme.CNSAllocatedNSIDs, 0xfffffffe, 0), page, nvme.StatusInvalidNamespace, 4, 0},
		{"Identify, allocated 0", adminQueue, identifyOf(nvme.CNSAllocatedNamespace, 0, 0), page, nvme.StatusInvalidNamespace, 4, 0},
		{"Identify, controllers of namespace 0", adminQueue, identifyOf(nvme.CNSAttachedControllers, 0, 0), page, nvme.StatusInvalidNamespace, 4, 0},
		{"Identify, command sets of controller 0", adminQueue, identifyOf(nvme.CNSCommandSets, 0, 0), page, nvme.StatusInvalidField, 42, 0},
		{"Identify, zoned controller", adminQueue, identifyOf(nvme.CNSCommandSetController, 0, nvme.CSIZonedNS), page, nvme.StatusInvalidField, 47, 0},
		{"Identify, key value namespace", adminQueue, identifyOf(nvme.CNSCommandSetNamespace, 1, nvme.CSIKeyValue), page, nvme.StatusInvalidField, 47, 0},
		{"Identify, active of key value", adminQueue, identifyOf(nvme.CNSCommandSetActiveNSIDs, 0, nvme.CSIKeyValue), page, nvme.StatusInvalidField, 47, 0},
		{"Identify, active of NVM after FFFFFFFEh", adminQueue, identifyOf(nvme.CNSCommandSetActiveNSIDs, 0xfffffffe, 0), page, nvme.StatusInvalidNamespace, 4, 0},
		{"Identify, allocated of zoned", adminQueue, identifyOf(nvme.CNSCommandSetAllocated, 0, nvme.CSIZonedNS), page, nvme.StatusInvalidField, 47, 0},
		{"Identify, common where hosts create none", adminQueue, identifyOf(nvme.CNSNamespace, nvme.NSIDAll, 0), page, nvme.StatusInvalidNamespace, 4, 0},
		{"Identify Namespace of discovery", discoveryQueue, identifyOf(nvme.CNSNamespace, 1, 0), page, nvme.StatusInvalidField, 40, 0},
	}
}

func wrongLogPages() []wrongField {
	type p = nvme.GetLogPage
	return []wrongField{
		{"log BFh", adminQueue, logOf(p{LID: 0xbf, Length: 64}), 64, nvme.StatusInvalidLogPage, 40, 0},
		{"discovery log of an I/O controller", adminQueue, logOf(p{LID: nvme.LogDiscovery, Length: 64}), 64, nvme.StatusInvalidLogPage, 40, 0},
		{"persistent events where nothing persists", adminQueue, logOf(p{LID: nvme.LogPersistent, LSP: 1, Length: 512}), 512, nvme.StatusInvalidLogPage, 40, 0},
		{"sanitize log of discovery", discoveryQueue, logOf(p{LID: nvme.LogSanitize, Length: 512}), 512, nvme.StatusInvalidLogPage, 40, 0},
		{"sanitize log of a namespace", adminQueue, logOf(p{LID: nvme.LogSanitize, NSID: 1, Length: 512}), 512, nvme.StatusInvalidField, 4, 0},
		{"SMART of discovery", discoveryQueue, logOf(p{LID: nvme.LogSMART, Length: 512}), 512, nvme.StatusInvalidLogPage, 40, 0},
		{"longer than MDTS", adminQueue, logOf(p{LID: nvme.LogError, Length: wrongTransfer + 4}), 64, nvme.StatusInvalidField, 42, 0},
		{"offset 2", adminQueue, logOf(p{LID: nvme.LogError, Length: 64, Offset: 2}), 64, nvme.StatusInvalidField, 48, 0},
		{"offset beyond", adminQueue, logOf(p{LID: nvme.LogFirmware, Length: 64, Offset: 1 << 20}), 64, nvme.StatusInvalidField, 48, 0},
		{"less memory than NUMD", adminQueue, logOf(p{LID: nvme.LogFirmware, Length: 128}), 64, nvme.StatusSGLLengthInvalid, 24, 0},
		{"SMART of no namespace", adminQueue, logOf(p{LID: nvme.LogSMART, NSID: 7, Length: 512}), 512, nvme.StatusInvalidNamespace, 4, 0},
		{"errors of a namespace", adminQueue, logOf(p{LID: nvme.LogError, NSID: 1, Length: 64}), 64, nvme.StatusInvalidField, 4, 0},
		{"effects of a namespace", adminQueue, logOf(p{LID: nvme.LogEffects, NSID: 1, Length: 4096}), 4096, nvme.StatusInvalidField, 4, 0},
	}
}

func wrongFeatures() []wrongField {
	saved := setFeatureOf(nvme.FeatArbitration, 0, 0)
	saved.SetCDW(10, saved.CDW10()|1<<31)
	return []wrongField{
		{"Get Features 00h", adminQueue, featureOf(0, 0, 0, 0), 0, nvme.StatusInvalidField, 40, 0},
		{"Get Features C0h", adminQueue, featureOf(0xc0, 0, 0, 0), 0, nvme.StatusInvalidField, 40, 0},
		{"Get Features, SEL 4", adminQueue, featureOf(nvme.FeatArbitration, 4, 0, 0), 0, nvme.StatusInvalidField, 41, 0},
		{"Get Features, sensor 1", adminQueue, featureOf(nvme.FeatTempThreshold, 0, 0, 1<<16), 0, nvme.StatusInvalidField, 46, 0},
		{"Get Features, threshold type 2", adminQueue, featureOf(nvme.FeatTempThreshold, 0, 0, 2<<20), 0, nvme.StatusInvalidField, bit(46, 4), 0},
		{"Get Features, host ID of 64 bits", adminQueue, featureOf(nvme.FeatHostID, 0, 0, 0), 8, nvme.StatusInvalidField, 44, 0},
		{"Get Features, protection of none", adminQueue, featureOf(nvme.FeatWriteProtect, 0, 7, 0), 0, nvme.StatusInvalidNamespace, 4, 0},
		{"Get Features, timestamp in 4 bytes", adminQueue, featureOf(nvme.FeatTimestamp, 0, 0, 0), 4, nvme.StatusSGLLengthInvalid, 24, 0},
		{"Get Features 07h of discovery", discoveryQueue, featureOf(nvme.FeatNumberOfQueues, 0, 0, 0), 0, nvme.StatusInvalidField, 40, 0},

		{"Set Features C0h", adminQueue, setFeatureOf(0xc0, 0, 0), 0, nvme.StatusInvalidField, 40, 0},
		{"Set Features, saved", adminQueue, saved, 0, nvme.StatusFeatureNotSaveable, bit(43, 7), 0},
		{"Set Features of a namespace", adminQueue, setFeatureOf(nvme.FeatArbitration, 1, 0), 0, nvme.StatusFeatureNotNamespace, 4, 0},
		{"Set Features, host ID", adminQueue, setFeatureOf(nvme.FeatHostID, 0, 1), 0, nvme.StatusCommandSequence, nowhere, 0},
		{"Set Features, power state 1", adminQueue, setFeatureOf(nvme.FeatPower, 0, 1), 0, nvme.StatusInvalidField, 44, 0},
		{"Set Features, sensor 3", adminQueue, setFeatureOf(nvme.FeatTempThreshold, 0, 3<<16), 0, nvme.StatusInvalidField, 46, 0},
		{"Set Features, threshold type 3", adminQueue, setFeatureOf(nvme.FeatTempThreshold, 0, 3<<20), 0, nvme.StatusInvalidField, bit(46, 4), 0},
		{"Set Features, DULBE", adminQueue, setFeatureOf(nvme.FeatErrorRecovery, 1, 1<<16), 0, nvme.StatusInvalidField, 46, 0},
		{"Set Features, write cache where there is none", adminQueue, setFeatureOf(nvme.FeatVolatileWC, 0, 0), 0, nvme.StatusInvalidField, 40, 0},
		{"Set Features, 65536 submission queues", adminQueue, setFeatureOf(nvme.FeatNumberOfQueues, 0, 0xffff), 0, nvme.StatusInvalidField, 44, 0},
		{"Set Features, 65536 completion queues", adminQueue, setFeatureOf(nvme.FeatNumberOfQueues, 0, 0xffff0000), 0, nvme.StatusInvalidField, 46, 0},
		{"Set Features, queues after queues", adminQueue, setFeatureOf(nvme.FeatNumberOfQueues, 0, 0), 0, nvme.StatusCommandSequence, nowhere, 0},
		{"Set Features, telemetry events", adminQueue, setFeatureOf(nvme.FeatAsyncEvent, 0, uint32(nvme.AENTelemetry)), 0, nvme.StatusInvalidField, bit(45, 2), 0},
		{"Set Features, no keep-alive timeout", adminQueue, setFeatureOf(nvme.FeatKATO, 0, 0), 0, nvme.StatusKATOInvalid, 44, 0},
		{"Set Features, timestamp of 4 bytes", adminQueue, setFeatureOf(nvme.FeatTimestamp, 0, 0), 4, nvme.StatusSGLLengthInvalid, 24, 0},
		{"Set Features, protection of none", adminQueue, setFeatureOf(nvme.FeatWriteProtect, 7, 0), 0, nvme.StatusInvalidNamespace, 4, 0},
		{"Set Features, protection state 2", adminQueue, setFeatureOf(nvme.FeatWriteProtect, 1, 2), 0, nvme.StatusInvalidField, 44, 0},
		{"Set Features, fixed protection lifted", adminQueue, setFeatureOf(nvme.FeatWriteProtect, wrongReadOnly, 0), 0, nvme.StatusFeatureNotChangeable, 44, 0},
	}
}

// wrongRanges are the rows of all commands that name blocks.
func wrongRanges() (rows []wrongField) {
	const out = nvme.StatusLBAOutOfRange
	for _, op := range []nvme.Opcode{nvme.OpRead, nvme.OpWrite, nvme.OpCompare, nvme.OpWriteZeroes, nvme.OpVerify,
		nvme.OpWriteUncorrectable} {
		data := func(blocks int) int {
			if op == nvme.OpWriteZeroes || op == nvme.OpVerify || op == nvme.OpWriteUncorrectable {
				return 0
			}
			return blocks * wrongBlock
		}
		row := func(what string, cmd nvme.Command, data int, st nvme.Status, at int, lba uint64) {
			rows = append(rows, wrongField{op.IOName() + ", " + what, ioQueue, cmd, data, st, at, lba})
		}
		row("behind the end", ioOf(op, 1, wrongBlocks, 1), data(1), out, 40, wrongBlocks)
		row("over the end", ioOf(op, 1, wrongBlocks-1, 2), data(2), out, 40, wrongBlocks)
		row("the last address", ioOf(op, 1, math.MaxUint64, 2), data(2), out, 40, math.MaxUint64)
		for _, nsid := range []uint32{0, 7, target.MaxNSID + 1, 0xfffffffe} {
			row(fmt.Sprintf("namespace %#x", nsid), ioOf(op, nsid, 5, 1), data(1), nvme.StatusInvalidNamespace, 4, 5)
		}
		row("all namespaces", ioOf(op, nvme.NSIDAll, 5, 1), data(1), nvme.StatusInvalidField, 4, 5)
		if data(1) > 0 {
			row("more than MDTS", ioOf(op, 1, 3, wrongTransfer/wrongBlock+1), data(1), nvme.StatusInvalidField, 48, 3)
			row("less memory than blocks", ioOf(op, 1, 3, 2), data(1), nvme.StatusSGLLengthInvalid, 24, 3)
			row("more memory than blocks", ioOf(op, 1, 3, 1), data(2), nvme.StatusSGLLengthInvalid, 24, 3)
		}
		if op == nvme.OpWrite || op == nvme.OpWriteZeroes || op == nvme.OpWriteUncorrectable {
			row("write protected", ioOf(op, wrongReadOnly, 9, 1), data(1), nvme.StatusNamespaceWriteProtected, nowhere, 9)
		}
	}
	return rows
}

func wrongOthers() []wrongField {
	dsm := func(nsid uint32, n int) nvme.Command {
		return make1(func(c *nvme.Command) { c.SetDSM(nsid, n, nvme.DSMDeallocate) })
	}
	flush := func(nsid uint32) nvme.Command { return make1(func(c *nvme.Command) { c.SetFlush(nsid) }) }
	copyTo := func(nsid uint32, to uint64, n int) nvme.Command {
		return make1(func(c *nvme.Command) { c.SetCopy(nsid, to, n, 0) })
	}
	format := func(nsid uint32, lbaf int, ses nvme.SecureErase) nvme.Command {
		return make1(func(c *nvme.Command) { c.SetFormat(nsid, lbaf, ses) })
	}
	sanitize := func(a nvme.SanitizeAction) nvme.Command {
		return make1(func(c *nvme.Command) { c.SetSanitize(a, 0, 1, 0) })
	}
	fused := func(op nvme.Opcode, f nvme.Fuse) nvme.Command {
		c := ioOf(op, 1, 6, 1)
		c.SetFuse(f)
		return c
	}
	return []wrongField{
		{"Dataset Management, no namespace", ioQueue, dsm(7, 1), 16, nvme.StatusInvalidNamespace, 4, 0},
		{"Dataset Management, less data than NR", ioQueue, dsm(1, 2), 16, nvme.StatusSGLLengthInvalid, 24, 0},
		{"Dataset Management, more data than ranges", ioQueue, dsm(1, 1), nvme.DSMDataSize + 16, nvme.StatusSGLLengthInvalid, 24, 0},
		{"Dataset Management, write protected", ioQueue, dsm(wrongReadOnly, 1), 16, nvme.StatusNamespaceWriteProtected, nowhere, 0},
		{"Copy, no namespace", ioQueue, copyTo(7, 0, 1), 32, nvme.StatusInvalidNamespace, 4, 0},
		{"Copy, write protected", ioQueue, copyTo(wrongReadOnly, 0, 1), 32, nvme.StatusNamespaceWriteProtected, nowhere, 0},
		{"Copy, descriptors of format 2", ioQueue, wrongByte(copyTo(1, 5, 1), 49, 2), 32, nvme.StatusInvalidField, 49, 5},
		{"Copy of more ranges than MSRC", ioQueue, copyTo(1, 5, 129), 32, nvme.StatusCommandSizeLimit, 48, 5},
		{"Copy, less data than ranges", ioQueue, copyTo(1, 5, 2), 32, nvme.StatusSGLLengthInvalid, 24, 5},
		{"Copy to behind the end", ioQueue, copyTo(1, wrongBlocks, 1), 32, nvme.StatusLBAOutOfRange, 40, wrongBlocks},
		{"Copy onto itself", ioQueue, copyTo(1, 0, 1), 32, nvme.StatusOverlappingRange, nowhere, 0},
		{"fused Read", ioQueue, fused(nvme.OpRead, nvme.FuseFirst), wrongBlock, nvme.StatusInvalidField, 1, 6},
		{"Format of none", adminQueue, format(7, 0, 0), 0, nvme.StatusInvalidNamespace, 4, 0},
		{"Format of all", adminQueue, format(nvme.NSIDAll, 0, 0), 0, nvme.StatusInvalidField, 4, 0},
		{"Format to LBA format 1", adminQueue, format(1, 1, 0), 0, nvme.StatusInvalidFormat, 40, 0},
		{"Format with protection", adminQueue, wrongByte(format(1, 0, 0), 40, 1<<5), 0, nvme.StatusInvalidFormat, bit(40, 5), 0},
		{"Format, cryptographic erase", adminQueue, format(1, 0, nvme.EraseCrypto), 0, nvme.StatusInvalidField, bit(41, 1), 0},
		{"Format, write protected", adminQueue, format(wrongReadOnly, 0, 0), 0, nvme.StatusNamespaceWriteProtected, nowhere, 0},
		{"Format of discovery", discoveryQueue, format(1, 0, 0), 0, nvme.StatusInvalidOpcode, 0, 0},
		{"Sanitize, no action", adminQueue, sanitize(0), 0, nvme.StatusInvalidField, 40, 0},
		{"Sanitize, cryptographic erase", adminQueue, sanitize(nvme.SanitizeCryptoErase), 0, nvme.StatusInvalidField, 40, 0},
		{"Sanitize, action 5", adminQueue, sanitize(5), 0, nvme.StatusInvalidField, 40, 0},
		{"Sanitize, write protected", adminQueue, sanitize(nvme.SanitizeBlockErase), 0, nvme.StatusNamespaceWriteProtected, nowhere, 0},
		{"Sanitize of discovery", discoveryQueue, sanitize(nvme.SanitizeBlockErase), 0, nvme.StatusInvalidOpcode, 0, 0},
		{"Namespace Management, not allowed", adminQueue, make1(func(c *nvme.Command) { c.SetNSDelete(1) }), 0, nvme.StatusInvalidOpcode, 0, 0},
		{"Namespace Attachment, not allowed", adminQueue, make1(func(c *nvme.Command) { c.SetNSAttachment(1, nvme.NSDetach) }), 4096, nvme.StatusInvalidOpcode, 0, 0},
		{"Flush of none", ioQueue, flush(7), 0, nvme.StatusInvalidNamespace, 4, 0},
		{"Flush of 0", ioQueue, flush(0), 0, nvme.StatusInvalidNamespace, 4, 0},
		{"Read of blocks marked uncorrectable", ioQueue, ioOf(nvme.OpRead, 1, 3998, 4), 4 * wrongBlock, nvme.StatusUnrecoveredRead, nowhere, 4000},
		{"Verify of blocks marked uncorrectable", ioQueue, ioOf(nvme.OpVerify, 1, 4000, 1), 0, nvme.StatusUnrecoveredRead, nowhere, 4000},
		{"Compare with something else", ioQueue, ioOf(nvme.OpCompare, 1, 30, 2), 2 * wrongBlock, nvme.StatusCompareFailure, nowhere, 31},
	}
}

func wrongReservations() []wrongField {
	register := func(nsid uint32, a nvme.ResvAction, p nvme.CPTPL) nvme.Command {
		return make1(func(c *nvme.Command) { c.SetResvRegister(nsid, a, false, p) })
	}
	acquire := func(a nvme.ResvAction, kind nvme.ResvType) nvme.Command {
		return make1(func(c *nvme.Command) { c.SetResvAcquire(1, a, kind) })
	}
	release := func(a nvme.ResvAction) nvme.Command {
		return make1(func(c *nvme.Command) { c.SetResvRelease(1, a, 1) })
	}
	report := func(n int) nvme.Command { return make1(func(c *nvme.Command) { c.SetResvReport(1, n) }) }
	const invalid, length, conflict = nvme.StatusInvalidField, nvme.StatusSGLLengthInvalid, nvme.StatusReservationConflict
	return []wrongField{
		{"register, no namespace", ioQueue, register(7, 0, 0), 16, nvme.StatusInvalidNamespace, 4, 0},
		{"register, RREGA 3", ioQueue, register(1, 3, 0), 16, invalid, 40, 0},
		{"register, CPTPL 1", ioQueue, register(1, 0, 1), 16, invalid, bit(43, 6), 0},
		{"register, PTPL that isn't there", ioQueue, register(1, 0, nvme.CPTPLSet), 16, invalid, bit(43, 6), 0},
		{"register, 8 bytes", ioQueue, register(1, 0, 0), 8, length, 24, 0},
		{"register, key 0", ioQueue, register(1, 0, 0), 16, invalid, nowhere, 0},
		{"unregister, not registered", ioQueue, register(1, nvme.ResvUnregister, 0), 16, conflict, nowhere, 0},
		{"acquire, RACQA 3", ioQueue, acquire(3, 1), 16, invalid, 40, 0},
		{"acquire, RTYPE 0", ioQueue, acquire(0, 0), 16, invalid, 41, 0},
		{"acquire, RTYPE 7", ioQueue, acquire(0, 7), 16, invalid, 41, 0},
		{"acquire, IEKEY", ioQueue, wrongByte(acquire(0, 1), 40, 8), 16, invalid, bit(40, 3), 0},
		{"acquire, 8 bytes", ioQueue, acquire(0, 1), 8, length, 24, 0},
		{"acquire, not registered", ioQueue, acquire(0, 1), 16, conflict, nowhere, 0},
		{"release, RRELA 2", ioQueue, release(2), 8, invalid, 40, 0},
		{"release, IEKEY", ioQueue, wrongByte(release(0), 40, 8), 8, invalid, bit(40, 3), 0},
		{"release, 16 bytes", ioQueue, release(0), 16, length, 24, 0},
		{"release, not registered", ioQueue, release(0), 8, conflict, nowhere, 0},
		{"report, EDS 0", ioQueue, wrongByte(report(64), 44, 0), 64, nvme.StatusHostIDInconsistent, 44, 0},
		{"report, more than MDTS", ioQueue, report(wrongTransfer + 4), 64, invalid, 40, 0},
		{"report, less memory than NUMD", ioQueue, report(128), 64, length, 24, 0},
		{"Set Features 82h, no namespace", adminQueue, setFeatureOf(nvme.FeatResvNotification, 7, 0), 0, invalid, 4, 0},
		{"Set Features 83h, no namespace", adminQueue, setFeatureOf(nvme.FeatResvPersistence, 7, 0), 0, invalid, 4, 0},
		{"Set Features 83h, PTPL that isn't there", adminQueue, setFeatureOf(nvme.FeatResvPersistence, 1, 1), 0, invalid, 44, 0},
	}
}

// TestWrongFields sends every row of the table over every transport.
func TestWrongFields(t *testing.T) {
	noLeaks(t)
	open := func(o blockdev.Options) blockdev.Volume {
		v, err := blockdev.NewMemory(o)
		if err != nil {
			t.Fatal(err)
		}
		undo(t, "volume", v.Close)
		return v
	}
	size := blockdev.Options{Size: wrongBlocks * wrongBlock, BlockSize: wrongBlock}
	_, remote := serveConfig(t, target.Config{Authentication: &target.Authentication{Optional: true}, Subsystems: []target.SubsystemConfig{{
		NQN: testNQN, AllowAnyHost: true, Namespaces: []target.NamespaceConfig{
			{Volume: open(size)}, {Volume: open(size), ReadOnly: true},
		},
	}}})
	for _, path := range paths {
		t.Run(path, func(t *testing.T) {
			h := dialPair(t, remote, path)
			defer h.close(t)
			d := dialHost(t, remote, path, func(c *host.Config) { c.SubNQN = nvme.DiscoveryNQN })
			defer d.close(t)
			w := &wrongSender{t: t, h: h, d: d}
			w.prepare()
			for _, rows := range [][]wrongField{wrongFlags(), wrongFabrics(), wrongAuthentication(), wrongIdentify(), wrongLogPages(), wrongFeatures(),
				wrongRanges(), wrongReservations(), wrongOthers()} {
				for i := range rows {
					w.send(&rows[i])
				}
			}
			if smart, err := h.SMART(t.Context()); err != nil || smart.ErrorLogEntries.Uint64() != w.count[0] {
				t.Errorf("SMART tells of %v errors, want %d (%v)", smart.ErrorLogEntries, w.count[0], err)
			}
		})
	}
}

// wrongSender sends wrong commands to an I/O controller and a discovery controller.
type wrongSender struct {
	t     *testing.T
	h, d  *hostSide
	count [2]uint64 // errors so far, of h and of d
}

// prepare makes block 31 of namespace 1 the only one that isn't zero, and block 4000 unreadable.
func (w *wrongSender) prepare() {
	w.t.Helper()
	ns, err := w.h.Namespace(w.t.Context(), 1)
	if err != nil {
		w.t.Fatal(err)
	}
	b := make([]byte, wrongBlock)
	b[wrongBlock-1] = 1
	if _, err := ns.WriteAt(w.t.Context(), b, 31*wrongBlock); err != nil {
		w.t.Fatal(err)
	}
	r := host.Request{Cmd: ioOf(nvme.OpWriteUncorrectable, 1, 4000, 1)}
	if err := w.h.Queues()[0].Do(w.t.Context(), &r); err != nil {
		w.t.Fatal(err)
	}
}

// send sends a row's command and compares the answer, and the entry of the error log, with it.
func (w *wrongSender) send(row *wrongField) {
	w.t.Helper()
	var data []byte
	if row.data > 0 {
		data = make([]byte, row.data)
	}
	w.sendData(row, data, 0)
}

// sendData is send with the data of the host, and with the Command Specific Information of the error.
func (w *wrongSender) sendData(row *wrongField, data []byte, detail uint64) {
	w.t.Helper()
	side, queue, n := w.h, w.h.Admin(), &w.count[0]
	switch row.on {
	case ioQueue:
		queue = w.h.Queues()[0]
	case discoveryQueue:
		side, queue, n = w.d, w.d.Admin(), &w.count[1]
	}
	r := host.Request{Cmd: row.cmd, Data: data}
	_ = queue.Do(w.t.Context(), &r) // the status follows
	if r.Err != nil {
		w.t.Fatalf("%s: %v", row.name, r.Err)
	}
	if got, want := r.Status(), row.status|nvme.StatusDNR|nvme.StatusMore; got != want {
		w.t.Errorf("%s: status %#x (%v), want %#x (%v)", row.name, uint16(got), got, uint16(want), want)
	}
	*n++
	b := make([]byte, nvme.ErrorEntrySize)
	if err := side.ReadLog(w.t.Context(), nvme.GetLogPage{LID: nvme.LogError, NSID: nvme.NSIDAll}, b); err != nil {
		w.t.Fatalf("%s: %v", row.name, err)
	}
	var e nvme.ErrorEntry
	if err := e.Parse(b); err != nil {
		w.t.Fatal(err)
	}
	want := nvme.ErrorEntry{
		Count: *n, SQID: queue.ID(), CID: r.Cmd.CID(), StatusPhase: uint16(r.Status()) << 1, Location: uint16(row.at), LBA: row.lba,
		Specific: detail,
	}
	if row.cmd.Opcode() != nvme.OpFabrics {
		want.NSID = row.cmd.NSID()
	}
	if e != want {
		w.t.Errorf("%s: error log has\n%+v, want\n%+v", row.name, e, want)
	}
}
