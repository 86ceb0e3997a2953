package nvme

// CNS selects what Identify returns (CDW10 bits 7:0).
type CNS uint8

// Identify pages (NVMe base, figure "Identify – CNS Values").
const (
	CNSNamespace             CNS = 0x00 // IdentifyNamespace
	CNSController            CNS = 0x01 // IdentifyController
	CNSActiveNSIDs           CNS = 0x02 // NSIDList
	CNSDescriptors           CNS = 0x03 // NSDescriptors
	CNSNVMSets               CNS = 0x04
	CNSCommandSetNamespace   CNS = 0x05 // I/O command set specific
	CNSCommandSetController  CNS = 0x06 // IdentifyControllerNVM for CSI 0
	CNSCommandSetActiveNSIDs CNS = 0x07
	CNSIndependentNamespace  CNS = 0x08 // IdentifyNamespaceIndependent
	CNSAllocatedNSIDs        CNS = 0x10 // NSIDList
	CNSAllocatedNamespace    CNS = 0x11 // IdentifyNamespace
	CNSAttachedControllers   CNS = 0x12 // ControllerList
	CNSControllers           CNS = 0x13 // ControllerList
	CNSCommandSetAllocated   CNS = 0x1a // NSIDList
	CNSCommandSetAllocatedNS CNS = 0x1b // as CNSCommandSetNamespace
	CNSCommandSets           CNS = 0x1c
)

// CSI is a command set identifier.
type CSI uint8

// Command sets.
const (
	CSINVM       CSI = 0
	CSIKeyValue  CSI = 1
	CSIZonedNS   CSI = 2
	CSISubsystem CSI = 3
)

// SetIdentify makes c an Identify command.
func (c *Command) SetIdentify(cns CNS, nsid uint32, cntid uint16, csi CSI) {
	c.start(OpIdentify, nsid)
	c.SetCDW(10, uint32(cns)|uint32(cntid)<<16)
	c.SetCDW(11, uint32(csi)<<24)
}

// CNS is CDW10 bits 7:0 of Identify.
func (c *Command) CNS() CNS { return CNS(c[offCDW10]) }

// CNTID is CDW10 bits 31:16 of Identify: the controller asked about.
func (c *Command) CNTID() uint16 { return uint16(c.CDW10() >> 16) }

// IdentifyCSI is CDW11 bits 31:24 of Identify.
func (c *Command) IdentifyCSI() CSI { return CSI(c.CDW(11) >> 24) }
