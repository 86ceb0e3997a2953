package nvme

import "unsafe"

// SMARTLogSize is the size of the page in bytes.
const SMARTLogSize = 512

// SMARTLog is the SMART / Health Information log, 02h.
type SMARTLog struct {
	CriticalWarning  CriticalWarning
	Temperature      [2]byte // composite, K, little-endian; see Kelvin
	AvailableSpare   uint8   // percent
	SpareThreshold   uint8   // percent
	PercentageUsed   uint8
	EnduranceWarning uint8 // endurance group critical warning summary
	_                [25]byte
	DataUnitsRead    Uint128 // units of 1000 × 512 bytes, rounded up
	DataUnitsWritten Uint128
	HostReads        Uint128 // commands
	HostWrites       Uint128
	BusyTime         Uint128 // minutes
	PowerCycles      Uint128
	PowerOnHours     Uint128
	UnsafeShutdowns  Uint128
	MediaErrors      Uint128
	ErrorLogEntries  Uint128
	WarningTempTime  uint32    // minutes
	CriticalTempTime uint32    // minutes
	Sensors          [8]uint16 // K; 0 if there is no such sensor
	TMT1Transitions  uint32
	TMT2Transitions  uint32
	TMT1Time         uint32 // seconds
	TMT2Time         uint32
	_                [280]byte
}

var _ [SMARTLogSize]byte = [unsafe.Sizeof(SMARTLog{})]byte{}

// CriticalWarning is the first byte of the SMART log.
type CriticalWarning uint8

// Bits of CriticalWarning.
const (
	WarnSpare       CriticalWarning = 1 << 0
	WarnTemperature CriticalWarning = 1 << 1
	WarnReliability CriticalWarning = 1 << 2
	WarnReadOnly    CriticalWarning = 1 << 3
	WarnBackup      CriticalWarning = 1 << 4
	WarnPMR         CriticalWarning = 1 << 5
)

// Kelvin is the composite temperature in kelvins.
func (p *SMARTLog) Kelvin() int { return int(p.Temperature[0]) | int(p.Temperature[1])<<8 }

// SetKelvin sets the composite temperature.
func (p *SMARTLog) SetKelvin(k int) { p.Temperature = [2]byte{byte(k), byte(k >> 8)} }

// SMARTDataUnits converts a count of bytes to the log's units of 1000 × 512 bytes, rounded up.
func SMARTDataUnits(bytes uint64) Uint128 {
	const unit = 1000 * 512
	n := bytes / unit
	if bytes%unit != 0 {
		n++
	}
	return Uint128From(n)
}

// AppendTo appends the page.
func (p *SMARTLog) AppendTo(b []byte) []byte { return appendPage(b, p) }

// Parse reads the page from b.
func (p *SMARTLog) Parse(b []byte) error { return parsePage(b, p, SMARTLogSize, LogSMART.String()) }
