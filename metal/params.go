//go:build cgo

package metal

/*
#include "kernels/accept.h"
#include "kernels/attention.h"
#include "kernels/conv.h"
#include "kernels/draft.h"
#include "kernels/gate.h"
#include "kernels/gdn.h"
#include "kernels/hadamard.h"
#include "kernels/hyper.h"
#include "kernels/moe.h"
#include "kernels/ngram.h"
#include "kernels/norm.h"
#include "kernels/project.h"
#include "kernels/qsa.h"
#include "kernels/repack.h"
#include "kernels/rows.h"
#include "kernels/sampling.h"
#include "kernels/selector.h"
#include "kernels/ternary.h"
*/
import "C"

// The structures that kernels read, from the very headers that they include.
type (
	rowInfo          = C.Row
	segmentInfo      = C.Segment
	normParams       = C.NormParams
	gatedNormParams  = C.GatedNormParams
	projectParams    = C.ProjectParams
	sumParams        = C.SumParams
	gatherParams     = C.GatherParams
	gateParams       = C.GateParams
	copyParams       = C.CopyParams
	prepareParams    = C.PrepareParams
	attentionParams  = C.AttentionParams
	convParams       = C.ConvParams
	gdnParams        = C.GDNParams
	draftRowsParams  = C.DraftRowsParams
	draftTapsParams  = C.DraftTapsParams
	draftConvParams  = C.DraftConvParams
	draftHeadsParams = C.DraftHeadsParams
	hadamardParams   = C.HadamardParams
	hyperParams      = C.HyperParams
	ngramParams      = C.NGramParams
	indexParams      = C.IndexParams
	routeParams      = C.RouteParams
	expertTile       = C.Tile
	groupParams      = C.GroupParams
	expertParams     = C.ExpertParams
	combineParams    = C.CombineParams
	sharedParams     = C.SharedParams
	candidate        = C.Candidate
	topParams        = C.TopParams
	selectParams     = C.SelectParams
	walk             = C.Walk
	verifyParams     = C.VerifyParams
	verifyRows       = C.Verify
	occurrence       = C.Occurrence
	policy           = C.Policy
	rowTarget        = C.Target
	headParams       = C.HeadParams
	penaltyParams    = C.PenaltyParams
	acceptLane       = C.AcceptLane
	accepted         = C.Accepted
	acceptParams     = C.AcceptParams
	quantizeParams   = C.QuantizeParams
	repackParams     = C.RepackParams

	cUint  = C.uint
	cInt   = C.int
	cFloat = C.float
)

const (
	pageTokens = C.pageTokens
	scaleBytes = C.scaleBytes
	convKept   = C.convKept
	convTaps   = C.convTaps
	gdnDim     = C.gdnDim
	gdnKept    = C.gdnKept
	gdnUpdate  = C.gdnUpdate
	gdnChunk   = C.gdnChunk
	draftDim   = C.draftDim
	draftPerKV = C.draftPerKV

	maxTaken       = C.maxTaken
	maxExperts     = C.maxExperts
	expertRows     = C.expertRows
	ngramKept      = C.ngramKept
	indexPlace     = C.indexPlace
	hadamardBlock  = C.hadamardBlock
	draftProposals = C.proposals
	draftDraws     = C.draws
	codeBlock      = C.codeBlock
	ternaryGroup   = C.ternaryGroup
	ternaryRows    = C.ternaryRows
	bitsEntry      = C.bitsEntry
	noBit          = C.noBit
	oneByte        = C.oneByte
	noScale        = C.noScale
	noRow          = C.noRow

	partCols         = C.partCols
	epilogueStore    = C.EpilogueStore
	epilogueAdd      = C.EpilogueAdd
	epilogueSiLU     = C.EpilogueSiLU
	epilogueMultiply = C.EpilogueMultiply
)
