// The declarations of Foundation that bridge_darwin.m uses, as Apple documents them, so that clang can check it anywhere.
#pragma once
#include <stddef.h>
#include <stdint.h>

typedef signed char BOOL;
typedef unsigned long NSUInteger;
typedef double CFTimeInterval;
#define __MAC_15_0 150000 // of the SDK's Availability.h
#define YES ((BOOL)1)
#define NO ((BOOL)0)
#define nil ((id)0)

__attribute__((objc_root_class)) @interface NSObject
+ (instancetype)new;
@end

@protocol NSObject
@end

@interface NSString : NSObject
@property(readonly) const char *UTF8String;
+ (instancetype)stringWithUTF8String:(const char *)text;
+ (instancetype)stringWithFormat:(NSString *)format, ... __attribute__((format(__NSString__, 1, 2)));
@end

// What literals in the source are.
@interface NSConstantString : NSString
@end

@interface NSError : NSObject
@property(readonly, copy) NSString *localizedDescription;
@end

typedef struct {
	unsigned long state;
	id __unsafe_unretained *itemsPtr;
	unsigned long *mutationsPtr;
	unsigned long extra[5];
} NSFastEnumerationState;

@interface NSMutableArray <T> : NSObject
- (void)addObject:(T)object;
- (void)removeAllObjects;
- (NSUInteger)countByEnumeratingWithState:(NSFastEnumerationState *)state
                                  objects:(id __unsafe_unretained *)buffer
                                    count:(NSUInteger)length;
@end

@interface NSArray <T> : NSObject
+ (instancetype)arrayWithObjects:(const id[])objects count:(NSUInteger)count;
@end

@interface NSURL : NSObject
+ (NSURL *)fileURLWithPath:(NSString *)path;
@end

@interface NSMutableSet <T> : NSObject
- (void)addObject:(T)object;
@end

NSUInteger NSPageSize(void);
