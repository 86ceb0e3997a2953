package main

import (
	"slices"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// pageBits has the bit fields of Identify pages and logs, and the properties of a controller, by nvme-cli's names. The
// names of the bits are those of NVMe base 2.1 and the NVM command set 1.1.
var pageBits = map[string][]part{
	// Identify Controller
	"cmic": {
		flag(3, "Asymmetric Namespace Access Reporting"),
		flag(2, "SR-IOV Virtual Function"),
		flag(1, "Multiple Controllers"),
		flag(0, "Multiple Ports"),
	},
	"oaes": noticeBits,
	"ctratt": {
		flag(19, "Flexible Data Placement"),
		flag(18, "Reservations and Host Identifier Interaction"),
		flag(17, "HMB Restrict Non-Operational Power State Access"),
		flag(16, "MDTS and Size Limits Exclude Metadata"),
		flag(15, "Extended LBA Formats"),
		flag(14, "Delete NVM Set"),
		flag(13, "Delete Endurance Group"),
		flag(12, "Variable Capacity Management"),
		flag(11, "Fixed Capacity Management"),
		flag(10, "Multi-Domain Subsystem"),
		flag(9, "UUID List"),
		flag(8, "SQ Associations"),
		flag(7, "Namespace Granularity"),
		flag(6, "Traffic Based Keep Alive"),
		flag(5, "Predictable Latency Mode"),
		flag(4, "Endurance Groups"),
		flag(3, "Read Recovery Levels"),
		flag(2, "NVM Sets"),
		flag(1, "Non-Operational Power State Permissive Mode"),
		flag(0, "128-bit Host Identifier"),
	},
	"crcap": {flag(1, "Reachability group of an attached namespace does not change"), flag(0, "Reachability Reporting")},
	"oacs": {
		flag(11, "Host Managed Live Migration"),
		flag(10, "Command and Feature Lockdown"),
		flag(9, "Get LBA Status"),
		flag(8, "Doorbell Buffer Config"),
		flag(7, "Virtualization Management"),
		flag(6, "NVMe-MI Send and NVMe-MI Receive"),
		flag(5, "Directives"),
		flag(4, "Device Self-test"),
		flag(3, "Namespace Management and Namespace Attachment"),
		flag(2, "Firmware Commit and Firmware Image Download"),
		flag(1, "Format NVM"),
		flag(0, "Security Send and Security Receive"),
	},
	"frmw": {
		flag(5, "Multiple Update Detection"),
		flag(4, "Firmware Activation Without Reset"),
		span(3, 1, "Number of Firmware Slots"),
		flag(0, "First Firmware Slot Read Only"),
	},
	"lpa": {
		flag(6, "Telemetry Data Area 4"),
		flag(5, "Supported Log Pages, Feature Identifiers and NVMe-MI Commands log pages"),
		flag(4, "Persistent Event log page"),
		flag(3, "Telemetry log pages"),
		flag(2, "Extended Data of Get Log Page"),
		flag(1, "Commands Supported and Effects log page"),
		flag(0, "SMART / Health Information log page per namespace"),
	},
	"sanicap": {
		span(31, 30, "No-Deallocate Modifies Media After Sanitize", "not defined", "media is not modified", "media is modified"),
		flag(29, "No-Deallocate Inhibited"),
		flag(3, "Verification"),
		flag(2, "Overwrite"),
		flag(1, "Block Erase"),
		flag(0, "Crypto Erase"),
	},
	"anacap": {
		flag(7, "ANAGRPID in Namespace Management"),
		flag(6, "ANAGRPID of an attached namespace does not change"),
		flag(4, "ANA Change state"),
		flag(3, "ANA Persistent Loss state"),
		flag(2, "ANA Inaccessible state"),
		flag(1, "ANA Non-Optimized state"),
		flag(0, "ANA Optimized state"),
	},
	"kpioc":   {flag(1, "Key Per I/O of all namespaces"), flag(0, "Key Per I/O")},
	"tmpthha": {span(2, 0, "Temperature Threshold Maximum Hysteresis")},
	"sqes":    {span(7, 4, "Maximum entry size, 2^n bytes"), span(3, 0, "Required entry size, 2^n bytes")},
	"cqes":    {span(7, 4, "Maximum entry size, 2^n bytes"), span(3, 0, "Required entry size, 2^n bytes")},
	"oncs": {
		flag(12, "Namespace Zeroes"),
		flag(11, "Maximum Write Zeroes with Deallocate"),
		flag(10, "All Fast Copy"),
		flag(9, "Copy Single Atomicity"),
		flag(8, "Copy"),
		flag(7, "Verify"),
		flag(6, "Timestamp"),
		flag(5, "Reservations"),
		flag(4, "Save and Select of Set Features and Get Features"),
		flag(3, "Write Zeroes"),
		flag(2, "Dataset Management"),
		flag(1, "Write Uncorrectable"),
		flag(0, "Compare"),
	},
	"fuses": {flag(0, "Fused Compare and Write")},
	"fna": {
		flag(3, "Format NVM of all namespaces by NSID FFFFFFFFh Not Supported"),
		flag(2, "Cryptographic Erase"),
		flag(1, "Secure Erase applies to all namespaces"),
		flag(0, "Format applies to all namespaces"),
	},
	"vwc": {
		span(2, 1, "Flush of NSID FFFFFFFFh", "not indicated", "reserved", "not supported", "supported"),
		flag(0, "Volatile Write Cache Present"),
	},
	"nwpc": {
		flag(2, "Permanent Write Protect"),
		flag(1, "Write Protect Until Power Cycle"),
		flag(0, "No Write Protect and Write Protect"),
	},
	"ocfs": {
		flag(4, "Copy Descriptor Format 4"),
		flag(3, "Copy Descriptor Format 3"),
		flag(2, "Copy Descriptor Format 2"),
		flag(1, "Copy Descriptor Format 1"),
		flag(0, "Copy Descriptor Format 0"),
	},
	"sgls": {
		flag(21, "Transport SGL Data Block Descriptor"),
		flag(20, "Address Field As Offset"),
		flag(19, "Metadata Pointer To SGL"),
		flag(18, "SGL Longer Than Data"),
		flag(17, "Byte Aligned Contiguous Metadata"),
		flag(16, "SGL Bit Bucket Descriptor"),
		span(15, 8, "SGL Descriptor Threshold"),
		flag(2, "Keyed SGL Data Block Descriptor"),
		span(1, 0, "SGL Support", "not supported", "no alignment required", "aligned to dwords", "reserved"),
	},
	"trattr": {
		flag(2, "Memory Range Tracking Length Limit"),
		flag(1, "Track User Data Changes"),
		flag(0, "Track Host Memory Changes"),
	},
	"fcatt": {flag(0, "Controller Model: 0 dynamic, 1 static")},
	"ofcs":  {flag(0, "Disconnect")},

	// Identify Namespace
	"nsfeat": {
		flag(7, "Optimal Read Performance: NPRG, NPRA and NORS are defined"),
		flag(6, "Multiple Atomicity Mode"),
		span(5, 4, "Optimal Performance", "nothing is defined", "NPWG, NPWA, NPDG, NPDA and NOWS are defined",
			"NPWG, NPWA, NPDGL, NPDA and NOWS are defined", "NPWG, NPWA, NPDG, NPDGL, NPDA and NOWS are defined"),
		flag(3, "UID Reuse: NGUID and EUI64 are never reused"),
		flag(2, "Deallocated or Unwritten Logical Block Error"),
		flag(1, "Namespace Atomicity: NAWUN, NAWUPF and NACWU are defined"),
		flag(0, "Thin Provisioning"),
	},
	"flbas": {
		span(6, 5, "Format Index, upper bits"),
		flag(4, "Metadata at the End of LBA"),
		span(3, 0, "Format Index, lower bits"),
	},
	"mc": {flag(1, "Metadata in a separate buffer"), flag(0, "Metadata at the end of the LBA")},
	"dpc": {
		flag(4, "Protection Information In Last Bytes"),
		flag(3, "Protection Information In First Bytes"),
		flag(2, "Protection Information Type 3"),
		flag(1, "Protection Information Type 2"),
		flag(0, "Protection Information Type 1"),
	},
	"dps": {
		flag(3, "Protection Information Position: 0 last bytes, 1 first bytes"),
		span(2, 0, "Protection Information Type", "disabled", "type 1", "type 2", "type 3"),
	},
	"nmic": {flag(1, "Dispersed Namespace"), flag(0, "Shared Namespace")},
	"rescap": {
		flag(7, "Ignore Existing Key as of NVMe 1.3"),
		flag(6, "Exclusive Access - All Registrants"),
		flag(5, "Write Exclusive - All Registrants"),
		flag(4, "Exclusive Access - Registrants Only"),
		flag(3, "Write Exclusive - Registrants Only"),
		flag(2, "Exclusive Access"),
		flag(1, "Write Exclusive"),
		flag(0, "Persist Through Power Loss"),
	},
	"fpi": {flag(7, "Format Progress Indicator"), span(6, 0, "Percentage that remains to be formatted")},
	"dlfeat": {
		flag(4, "Guard of deallocated blocks: 0 FFFFh, 1 CRC"),
		flag(3, "Deallocate of Write Zeroes"),
		span(2, 0, "Deallocated blocks read as", "not reported", "00h", "FFh"),
	},
	"nsattr": {flag(0, "Write Protected")},

	// SMART / Health Information
	"critical_warning": warningBits,
	"endurance_grp_critical_warning_summary": {
		flag(3, "Read Only"),
		flag(2, "Reliability Degraded"),
		flag(0, "Available Spare Below Threshold"),
	},

	// Firmware Slot Information
	activeSlot: {span(6, 4, "Next Active Firmware Slot, 0 none"), span(2, 0, "Active Firmware Slot")},

	// Sanitize Status
	"sstat": {
		flag(9, "Media Verification Canceled"),
		flag(8, "Global Data Erased"),
		span(7, 3, "Overwrite Passes Completed"),
		span(2, 0, "Sanitize Operation Status", "never sanitized", "completed", "in progress", "failed", "completed, deallocated against the request"),
	},
	"cdw10_info": {
		flag(10, "Enter Media Verification State"),
		flag(9, "No-Deallocate After Sanitize"),
		flag(8, "Overwrite Invert Pattern Between Passes"),
		span(7, 4, "Overwrite Pass Count, 0 for 16"),
		flag(3, "Allow Unrestricted Sanitize Exit"),
		span(2, 0, "Sanitize Action", "reserved", "exit failure mode", "block erase", "overwrite", "crypto erase", "exit media verification state"),
	},

	// Properties
	"cap": {
		flag(61, "NVM Subsystem Shutdown Enhancements"),
		flag(60, "Controller Ready Independent of Media"),
		flag(59, "Controller Ready With Media"),
		flag(58, "NVM Subsystem Shutdown"),
		flag(57, "Controller Memory Buffer"),
		flag(56, "Persistent Memory Region"),
		span(55, 52, "Memory Page Size Maximum, 2^(12+n) bytes"),
		span(51, 48, "Memory Page Size Minimum, 2^(12+n) bytes"),
		span(47, 46, "Controller Power Scope", "not reported", "controller", "domain", "NVM subsystem"),
		flag(45, "Boot Partition"),
		flag(44, "No I/O Command Set"),
		flag(43, "I/O Command Sets"),
		flag(37, "NVM Command Set"),
		flag(36, "NVM Subsystem Reset"),
		span(35, 32, "Doorbell Stride, 2^(2+n) bytes"),
		span(31, 24, "Timeout, 500 ms"),
		flag(18, "Vendor Specific Arbitration"),
		flag(17, "Weighted Round Robin with Urgent Priority Class"),
		flag(16, "Contiguous Queues Required"),
		span(15, 0, "Maximum Queue Entries Supported, 0-based"),
	},
	"vs": {span(31, 16, "Major Version"), span(15, 8, "Minor Version"), span(7, 0, "Tertiary Version")},
	"cc": {
		flag(24, "Controller Ready Independent of Media Enable"),
		span(23, 20, "I/O Completion Queue Entry Size, 2^n bytes"),
		span(19, 16, "I/O Submission Queue Entry Size, 2^n bytes"),
		span(15, 14, "Shutdown Notification", "none", "normal", "abrupt", "reserved"),
		span(13, 11, "Arbitration Mechanism: 0 round robin, 1 weighted with urgent priority class, 7 vendor specific"),
		span(10, 7, "Memory Page Size, 2^(12+n) bytes"),
		span(6, 4, "I/O Command Set Selected: 0 NVM, 6 all supported, 7 admin only"),
		flag(0, "Enable"),
	},
	"csts": {
		flag(6, "Shutdown Type: 0 controller, 1 NVM subsystem"),
		flag(5, "Processing Paused"),
		flag(4, "NVM Subsystem Reset Occurred"),
		span(3, 2, "Shutdown Status", "none", "occurring", "complete", "reserved"),
		flag(1, "Controller Fatal Status"),
		flag(0, "Ready"),
	},
	"crto": {
		span(31, 16, "Controller Ready Independent of Media Timeout, 500 ms"),
		span(15, 0, "Controller Ready With Media Timeout, 500 ms"),
	},
}

// independentBits has the bit fields of the I/O Command Set Independent Identify Namespace page, whose NSFEAT has other
// bits than that of Identify Namespace.
var independentBits = map[string][]part{
	"nsfeat": {
		flag(5, "Volatile Write Cache Not Present"),
		flag(4, "Rotational Media"),
		flag(3, "UID Reuse: NGUID and EUI64 are never reused"),
	},
	"nmic": pageBits["nmic"], "rescap": pageBits["rescap"], "fpi": pageBits["fpi"], "nsattr": pageBits["nsattr"],
	"nstat": {
		span(2, 1, "I/O Impacted", "not reported", "reserved", "not impacted", "impacted"),
		flag(0, "Namespace Ready"),
	},
}

// noticeBits are the events in OAES, and in feature 0Bh.
var noticeBits = []part{
	flag(31, "Discovery Log Page Change Notifications"),
	flag(27, "Zone Descriptor Changed Notices"),
	flag(19, "Allocated Namespace Attribute Notices"),
	flag(17, "Reachability Groups Change Notices"),
	flag(16, "Temperature Threshold Hysteresis Recovery"),
	flag(15, "Normal NVM Subsystem Shutdown"),
	flag(14, "Endurance Group Event Aggregate Log Change Notices"),
	flag(13, "LBA Status Information Alert Notices"),
	flag(12, "Predictable Latency Event Aggregate Log Change Notices"),
	flag(11, "Asymmetric Namespace Access Change Notices"),
	flag(9, "Firmware Activation Notices"),
	flag(8, "Attached Namespace Attribute Notices"),
}

// warningBits are the critical warnings in the SMART log, and in feature 0Bh.
var warningBits = []part{
	flag(5, "Persistent Memory Region Unreliable or Read Only"),
	flag(4, "Volatile Memory Backup Failed"),
	flag(3, "All Media Read Only"),
	flag(2, "Reliability Degraded"),
	flag(1, "Temperature Beyond Threshold"),
	flag(0, "Available Spare Below Threshold"),
}

// featureBits has the bit fields of features.
var featureBits = map[nvme.FID][]part{
	nvme.FeatArbitration: {
		span(31, 24, "High Priority Weight, 0-based"),
		span(23, 16, "Medium Priority Weight, 0-based"),
		span(15, 8, "Low Priority Weight, 0-based"),
		span(2, 0, "Arbitration Burst, 2^n commands, 7 no limit"),
	},
	nvme.FeatPower: {span(7, 5, "Workload Hint"), span(4, 0, "Power State")},
	nvme.FeatTempThreshold: {
		span(24, 22, "Temperature Threshold Hysteresis, K"),
		span(21, 20, "Threshold Type Select", "over temperature", "under temperature"),
		span(19, 16, "Threshold Temperature Select: 0 composite, 1 to 8 sensors"),
		span(15, 0, "Temperature Threshold, K"),
	},
	nvme.FeatErrorRecovery: {
		flag(16, "Deallocated or Unwritten Logical Block Error Enable"),
		span(15, 0, "Time Limited Error Recovery, 100 ms"),
	},
	nvme.FeatVolatileWC: {flag(0, "Volatile Write Cache Enable")},
	nvme.FeatNumberOfQueues: {
		span(31, 16, "Number of I/O Completion Queues Allocated, 0-based"),
		span(15, 0, "Number of I/O Submission Queues Allocated, 0-based"),
	},
	nvme.FeatInterruptCoalesce: {span(15, 8, "Aggregation Time, 100 µs"), span(7, 0, "Aggregation Threshold, 0-based")},
	nvme.FeatInterruptVector:   {flag(16, "Coalescing Disable"), span(15, 0, "Interrupt Vector")},
	nvme.FeatWriteAtomicity:    {flag(0, "Disable Normal")},
	nvme.FeatAsyncEvent:        slices.Concat(noticeBits[:10], []part{flag(10, "Telemetry Log Notices")}, noticeBits[10:], warningBits),
	nvme.FeatResvNotification: {
		flag(3, "Mask Reservation Preempted Notification"),
		flag(2, "Mask Reservation Released Notification"),
		flag(1, "Mask Registration Preempted Notification"),
	},
	nvme.FeatResvPersistence: {flag(0, "Persist Through Power Loss")},
	nvme.FeatWriteProtect: {
		span(2, 0, "Write Protection State", "no write protect", "write protect", "write protect until power cycle", "permanent write protect"),
	},
}
